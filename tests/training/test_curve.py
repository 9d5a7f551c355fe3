"""The curve of a run, with evaluations that the test ends."""

from concurrent.futures import Future
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from feelgood.agents import AgentState
from feelgood.training.curve import CurveRecorder, Point
from feelgood.training.evaluation import Evaluator


class Ends(Evaluator):
    """Hands out futures and remembers with which key and policy each was asked for."""

    def __init__(self):
        self.asked = []

    def submit(self, key, policy):
        self.asked.append((key, policy, Future()))
        return self.asked[-1][2]

    def end(self, number, *returns, num_cut=0):
        lengths = np.full(len(returns), 7.0)
        played = SimpleNamespace(returns=np.asarray(returns), lengths=lengths, num_cut=num_cut)
        self.asked[number][2].set_result(played)


@pytest.fixture
def evaluator():
    return Ends()


@pytest.fixture
def told():
    return []


@pytest.fixture
def curve(evaluator, told):
    return CurveRecorder(100, 30, evaluator, jax.random.key(0), told.append)


def policy(number):
    return AgentState(*[number] * len(AgentState._fields))


def point(step, is_finite=True):
    return Point(step, *[np.nan] * 3, 0.5, 2, 0.25, 0.1, 9.0, is_finite)


def test_a_point_is_due_every_period_and_at_the_end(curve):
    assert [curve.index(step) for step in (0, 29, 30, 89, 90, 99, 100, 120)] == [0, 0, 1, 2, 3, 3, 4, 4]


def test_points_are_reported_in_order_whichever_evaluation_ends_first(curve, evaluator, told):
    for step in (0, 32):
        curve.add(point(step))
        curve.evaluate(step, policy(step))
    evaluator.end(1, 1.0, 3.0)
    curve.collect(32)
    assert told == []
    evaluator.end(0, 5.0)
    curve.collect(32)
    assert [(p.step, p.return_, p.return_spread, p.episode_length) for p in told] == [(0, 5, 0, 7), (32, 2, 1, 7)]
    assert [type(value) for value in told[0]] == [int, *[float] * 4, int, *[float] * 3, bool]
    assert not curve.is_waiting()
    assert curve.points() == told
    assert [asked for _, asked, _ in evaluator.asked] == [policy(0), policy(32)]
    keys = {tuple(jax.random.key_data(key).tolist()) for key, _, _ in evaluator.asked}
    assert len(keys) == 2


def test_points_that_no_turn_ended_at_are_left_out(curve, evaluator, told):
    for number, step in enumerate((0, 75)):  # a turn of 75 steps
        curve.add(point(step))
        curve.evaluate(step, policy(step))
        evaluator.end(number, 1.0)
        curve.collect(step)
    assert [p.step for p in told] == [0, 75]
    assert curve.reported_steps() == [0, 75]


def test_the_best_policy_is_that_of_the_highest_return_and_the_latest_one_in_a_tie(curve, evaluator):
    for number, (step, value) in enumerate([(0, 1.0), (30, 4.0), (60, 2.0), (90, 4.0)]):
        curve.add(point(step))
        curve.evaluate(step, policy(step))
        assert curve.best_step() == [None, 0, 30, 30][number]
        evaluator.end(number, value, num_cut=number)
        curve.collect(step)
    assert curve.best == (90, policy(90))
    assert curve.num_cut == 6


def test_a_point_with_parameters_that_are_not_finite_has_no_evaluation(curve, told):
    assert curve.is_alive(0)
    curve.add(point(0, is_finite=False))
    curve.collect(0)
    assert np.isnan(told[0].return_)
    assert not told[0].is_finite
    assert not curve.is_alive(0)
    assert curve.unevaluated_steps() == []
