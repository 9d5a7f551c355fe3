"""The loop for external environments, on environments whose observations identify every transition."""

import dataclasses
import errno
import itertools
import os
import signal
import threading
from functools import partial
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from feelgood import agents
from feelgood.envs.external import gym_environment, vector_environment
from feelgood.training import checkpoint, external, external_run
from feelgood.training.acting import deal
from feelgood.training.batch import Interrupted
from feelgood.training.config import ExternalConfig
from feelgood.training.evaluation import play, stacked
from feelgood.training.external import train
from feelgood.training.external_steps import external_steps
from feelgood.training.group import Group
from feelgood.training.journal import Journal

LENGTHS = (3, 5, 8)


class Telling(gymnasium.Env):
    """Shows (its seed, episode, time, last action); reward 10·time + action; episode lengths alternate as in LENGTHS.

    Every second episode terminates, the others are cut off.
    """

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1, 2**20, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.episode, self.name = -1, 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.name, self.episode = seed % 1009, -1
        self.episode, self.time, self.last = self.episode + 1, 0, -1
        return self.seen(), {}

    def seen(self):
        return np.array([self.name, self.episode, self.time, self.last], np.float32)

    def step(self, action):
        reward = 10.0 * self.time + action
        self.time, self.last = self.time + 1, action
        end = self.time == LENGTHS[self.episode % 3]
        return self.seen(), reward, end and self.episode % 2 == 0, end and self.episode % 2 == 1, {}


def make(num_envs, training):
    return SyncVectorEnv([Telling] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


ENVIRONMENT = vector_environment(make, "telling")
CONFIG = ExternalConfig(
    num_steps=240,
    num_envs=4,
    num_groups=1,
    num_draws=1,
    learning_starts=24,
    replay_ratio=1 / 8,
    batch_size=4,
    capacity=80,
    n_step=2,
    discount=0.5,
    target_update_period=6,
    evaluation_period=80,
    num_evaluation_episodes=2,
    max_evaluation_steps=20,
)
TAKING_TURNS = dataclasses.replace(CONFIG, num_groups=2, num_draws=2, draw_steps=2)


def make_agent(spaces, hyper):
    return agents.make_agent("dqn", spaces, {"step_size": hyper["step_size"]}, agents.Options(hidden=(8,)))


HYPER = {"step_size": 1e-3}


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Runs of one config share their compiled functions."""
    made, build = {}, external.external_steps

    def external_steps(environment, make_agent, config, hyper, schedule):
        budget = {"num_steps": 1, "evaluation_period": 80}
        key = (environment.reset_lanes, dataclasses.replace(config, **budget))
        if key not in made:
            made[key] = build(environment, make_agent, config, hyper, schedule)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external, "external_steps", external_steps)
        yield


@pytest.fixture
def at_once(monkeypatch):
    """The training waits for each evaluation, so it has not passed the newest point of the curve."""
    submit = external_run.Evaluator.submit

    def wait(evaluator, key, agent):
        future = submit(evaluator, key, agent)
        future.exception(60)
        return future

    monkeypatch.setattr(external_run.Evaluator, "submit", wait)


@pytest.fixture(scope="module", params=[CONFIG, TAKING_TURNS], ids=["together", "taking turns"])
def finished(request):
    """A run that went to its end, with all its data."""
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_run.Run, "close", lambda run: runs.append(run))
        outcome = train(ENVIRONMENT, make_agent, request.param, HYPER, seed=3)
    host_run = runs[0]
    yield outcome, host_run
    host_run.evaluator.close()
    for group in host_run.groups:
        group.close()


def test_stored_transitions_equal_observed_ones(finished):
    _, run = finished
    frames, ring, config = run.lanes.frames, run.steps.replay, run.config
    slots = np.arange(config.num_rows * config.num_lanes)
    assert len(slots) == CONFIG.capacity
    batch = jax.tree.map(np.asarray, ring.take(frames, slots, CONFIG.discount))
    starts = np.asarray(ring.is_start(frames, slots))
    assert starts.sum() > 40
    kinds = set()
    for slot in slots[starts]:
        name, episode, time, _ = batch.observation[slot]
        length, terminates = LENGTHS[int(episode) % 3], int(episode) % 2 == 0
        next_name, next_episode, next_time, last = batch.next_observation[slot]
        steps = int(next_time - time)
        assert (next_name, next_episode) == (name, episode)
        assert 1 <= steps <= 2
        rows_after = (int(frames.head) - 1 - slot // config.num_lanes) % config.num_rows
        assert steps == 2 or next_time == length or rows_after // config.num_groups == 1
        first, action = batch.first_observation[slot], batch.action[slot]
        assert tuple(first) == (name, episode, 0, -1)
        expected = 10 * time + action + (0.5 * (10 * (time + 1) + last) if steps == 2 else 0)
        assert batch.return_[slot] == pytest.approx(expected)
        ends = next_time == length and terminates
        assert batch.bootstrap_discount[slot] == (0 if ends else 0.5**steps)
        kinds.add((steps, bool(ends), bool(next_time == length)))
    assert {(2, False, False), (2, True, True), (2, False, True), (1, True, True), (1, False, True)} <= kinds


def test_the_curve_has_a_point_for_every_period_with_returns_that_add_up(finished):
    outcome, _ = finished
    assert [point.step for point in outcome.curve] == [0, 80, 160, 240]
    assert np.isnan(outcome.curve[0].training_return)
    for point in outcome.curve:
        # The first episode of an environment has three steps, of reward 0 + 10 + 20 and its actions.
        assert 30 <= point.return_ <= 36
        assert point.episode_length == 3
        assert point.is_finite
    assert all(point.num_episodes > 5 for point in outcome.curve[1:])
    assert all(np.isfinite(point.potential) for point in outcome.curve[1:])
    assert np.isnan(outcome.curve[0].action_changes)
    # At first actions are random, at the end hardly any is.
    first, *_, last = (point.action_changes for point in outcome.curve[1:])
    assert 0 <= last < first < 1
    assert outcome.num_steps == 240


def test_gradient_steps_come_in_the_replay_ratio(finished):
    _, run = finished
    # One for every eight steps, from `learning_starts` on, at the end of the third block of eight.
    assert run.counters.gradients == (240 - 24) // 8 + 1


def test_seeds_repeat_and_differ(finished):
    outcome, run = finished
    again = train(ENVIRONMENT, make_agent, run.config, HYPER, seed=3)
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    assert same(again.agent, outcome.agent)
    timeless = lambda outcome: [dataclasses.astuple(_Point(point)) for point in outcome.curve]
    np.testing.assert_array_equal(np.array(timeless(again)), np.array(timeless(outcome)))
    other = train(ENVIRONMENT, make_agent, run.config, HYPER, seed=4)
    assert not same(other.agent.sampler.params, outcome.agent.sampler.params)


@dataclasses.dataclass
class _Point:
    """All of a point but the time that it took."""

    point: tuple

    def __post_init__(self):
        self.point = tuple(float(value) for value in self.point._replace(seconds=0.0))


class Killed(Exception):
    pass


def test_a_run_that_dies_goes_on_from_its_last_checkpoint_with_agent_replay_and_curve(tmp_path, monkeypatch):
    saved, checkpoint = [], external_run.Run._checkpoint

    def watched(run):
        copies = jax.tree.map(np.array, (run.agent, run.lanes))
        saved.append((run.counters.turns, *copies, run.curve.rows.copy()))
        checkpoint(run)

    def die(point):
        if point.step >= 160:
            raise Killed

    monkeypatch.setattr(external_run.Run, "_checkpoint", watched)
    settings = {"folder": tmp_path / "run", "label": "telling", "checkpoint_seconds": 0.0}
    with pytest.raises(Killed):
        train(ENVIRONMENT, make_agent, TAKING_TURNS, HYPER, 3, report=die, **settings)
    turns, agent, lanes, curve = saved[-1]
    assert turns * 2 >= 158  # a checkpoint every turn; the evaluation may arrive in its own turn, before the checkpoint
    # Rows that arrived after the checkpoint have been written by then, as a killed process leaves them.
    restored, said, begin = [], [], external_run.Run._begin

    def begun(run):
        copies = jax.tree.map(np.array, (run.agent, run.lanes))
        restored.append((run.counters.turns, *copies, run.curve.rows.copy()))
        return begin(run)

    monkeypatch.setattr(external_run.Run, "_begin", begun)
    outcome = train(ENVIRONMENT, make_agent, TAKING_TURNS, HYPER, 3, say=said.append, **settings)
    assert said == [f"continuing from step {turns * 2}; the environments begin new episodes"]
    assert restored[0][0] == turns
    equal = lambda a, b: [
        np.testing.assert_array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    ]
    equal(restored[0][1], agent)
    equal(restored[0][2], lanes)
    assert [point.step for point in outcome.curve] == [0, 80, 160, 240]
    np.testing.assert_array_equal(restored[0][3][:2, :4], curve[:2, :4])
    assert all(np.isfinite(point.return_) for point in outcome.curve)
    with pytest.raises(ValueError, match="belongs to another run"):
        train(ENVIRONMENT, lambda *_: pytest.fail("made"), TAKING_TURNS, HYPER, 4, **settings)
    # A finished run keeps its agent, curve and best policy, and no frames.
    assert (tmp_path / "run" / "frames.bin").stat().st_size == 0
    assert (tmp_path / "run" / f"evaluating-{outcome.best_step}.npz").exists()
    again = train(ENVIRONMENT, make_agent, TAKING_TURNS, HYPER, 3, **settings)
    # As text, because NaN differs from itself.
    assert (again.num_steps, repr(again.curve), again.best_step) == (0, repr(outcome.curve), outcome.best_step)
    equal(again.best, outcome.best)
    top = max(point.return_ for point in outcome.curve)
    assert outcome.best_step == max(point.step for point in outcome.curve if point.return_ == top)


@pytest.mark.usefixtures("at_once")
def test_ctrl_c_leaves_a_checkpoint(tmp_path):
    def stop(point):
        if point.step == 80:
            signal.raise_signal(signal.SIGINT)

    settings = {"folder": tmp_path, "label": "telling"}
    with pytest.raises(Interrupted) as stopped:
        train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, report=stop, **settings)
    so_far = stopped.value.so_far
    assert [point.step for point in so_far.curve] == [0, 80]
    top = max(so_far.curve, key=lambda point: (point.return_, point.step))
    assert so_far.best_step == top.step
    # And a second time, from the restored run.
    stop_again = lambda point: signal.raise_signal(signal.SIGINT) if point.step == 160 else None
    with pytest.raises(Interrupted):
        train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, report=stop_again, **settings)
    said = []
    assert len(train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, say=said.append, **settings).curve) == 4
    assert "continuing from step" in said[0]


def test_ctrl_c_while_only_evaluations_are_left_keeps_the_training(tmp_path, monkeypatch):
    settings, go_on = {"folder": tmp_path, "label": "telling"}, threading.Event()
    seat, keep_end = external_run.Evaluator._seat, external_run.Run._keep_end

    def slow(evaluator, place, asked):
        if not go_on.wait(600):
            raise TimeoutError
        seat(evaluator, place, asked)

    def stop_then(run):
        keep_end(run)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(1.0, go_on.set).start()

    with monkeypatch.context() as patch:
        patch.setattr(external_run.Evaluator, "_seat", slow)
        patch.setattr(external_run.Run, "_keep_end", stop_then)
        with pytest.raises(Interrupted) as stopped:
            train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, **settings)
    said = []
    assert stopped.value.so_far.curve == []  # no evaluation had ended
    outcome = train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, say=said.append, **settings)
    assert said == ["continuing from step 240; the environments begin new episodes"]
    assert all(np.isfinite(point.return_) for point in outcome.curve)
    assert outcome.num_steps == 0


def test_training_goes_on_while_an_evaluation_takes_its_time(monkeypatch):
    trained, seat, keep_end = threading.Event(), external_run.Evaluator._seat, external_run.Run._keep_end

    def slow(evaluator, place, asked):
        assert trained.wait(600)  # so the training must not wait for it
        seat(evaluator, place, asked)

    monkeypatch.setattr(external_run.Evaluator, "_seat", slow)
    monkeypatch.setattr(external_run.Run, "_keep_end", lambda run: (trained.set(), keep_end(run)))
    config = dataclasses.replace(CONFIG, evaluation_period=8)
    outcome = train(ENVIRONMENT, make_agent, config, HYPER, 3, num_evaluators=1)
    assert [point.step for point in outcome.curve] == list(range(0, 241, 8))
    assert all(np.isfinite(point.return_) for point in outcome.curve)


@pytest.mark.parametrize(("num_steps", "steps"), [(240, [0, 80, 160, 240]), (200, [0, 80, 160, 200])])
def test_the_last_evaluation_is_at_the_end(num_steps, steps):
    told, config = [], dataclasses.replace(CONFIG, num_steps=num_steps)
    outcome = train(ENVIRONMENT, make_agent, config, HYPER, 3, report=told.append)
    assert [point.step for point in outcome.curve] == [point.step for point in told] == steps
    assert all(np.isfinite(point.return_) for point in outcome.curve)


def test_a_point_between_two_turns_is_left_out_and_the_next_is_reported(tmp_path):
    # Turns end at multiples of 4: none of them is in [78, 79), so the point at 78 is due together with the last.
    told, config = [], dataclasses.replace(CONFIG, num_steps=79, evaluation_period=39)
    outcome = train(ENVIRONMENT, make_agent, config, HYPER, 3, report=told.append, folder=tmp_path)
    assert [point.step for point in outcome.curve] == [point.step for point in told] == [0, 40, 80]


def test_evaluations_that_do_not_end_are_cut_off_with_one_message():
    said, config = [], dataclasses.replace(CONFIG, num_steps=40, evaluation_period=8, max_evaluation_steps=1)
    outcome = train(ENVIRONMENT, make_agent, config, HYPER, 3, say=said.append)
    assert {point.episode_length for point in outcome.curve} == {1.0}
    assert said == [
        "evaluation episodes of telling were cut off after 1 steps, because the environment had not ended them; "
        "the setting max_evaluation_steps changes this"
    ]


def test_progress_and_speed_are_reported_every_second(monkeypatch):
    clock, ticks = itertools.count(0.0, 0.25), []
    monkeypatch.setattr(external_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, tick=lambda step, speed: ticks.append((step, speed, next(clock))))
    steps, speeds, times = np.transpose(ticks)
    assert len(ticks) > 10
    assert steps[-1] <= CONFIG.num_steps
    np.testing.assert_array_less(1, np.diff(times))
    np.testing.assert_allclose(np.diff(steps) / np.diff(times), speeds[1:], rtol=0.3)  # reading moves the clock


def test_infinite_parameters_end_the_run_and_are_reported(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=480)
    outcome = train(ENVIRONMENT, make_agent, config, {"step_size": 1e30}, 0, folder=tmp_path)
    again = train(ENVIRONMENT, make_agent, config, {"step_size": 1e30}, 0, folder=tmp_path)
    assert again.num_steps == 0
    assert [point.step for point in again.curve] == [point.step for point in outcome.curve]
    assert not outcome.curve[-1].is_finite
    assert np.isnan(outcome.curve[-1].return_)
    assert outcome.curve[-1].step < 480


def test_several_chains_are_different_draws_that_share_the_environments():
    config = dataclasses.replace(CONFIG, num_chains=2, num_steps=80)
    outcome = train(ENVIRONMENT, make_agent, config, HYPER, 0)
    for leaf in jax.tree.leaves(outcome.agent.sampler.params):
        assert leaf.shape[0] == 2
        assert not np.array_equal(leaf[0], leaf[1])
    assert len(outcome.curve) == 2


def watch_acting(monkeypatch):
    """Lists that fill up with the newest parameters and those of the draws that act, turn by turn."""
    params, acting, act = [], [], external_run.Run._act
    first = lambda state: np.asarray(jax.tree.leaves(state.sampler.params)[0])

    def watched(run, arrival):
        params.append(first(run.agent))
        actions = act(run, arrival)
        acting.append(first(run.lanes.draws))
        return actions

    monkeypatch.setattr(external_run.Run, "_act", watched)
    return params, acting


def test_each_draw_acts_until_the_newest_takes_its_place(monkeypatch):
    params, acting = watch_acting(monkeypatch)
    train(ENVIRONMENT, make_agent, TAKING_TURNS, HYPER, seed=3)
    # 120 turns in two groups: the two draws were replaced last, two turns apart.
    np.testing.assert_array_equal(acting[-1], [params[-3], params[-1]])
    assert not np.array_equal(params[-3], params[0])
    # Two draws from the prior act until there was an update, after 24 steps of two environments; then one goes.
    assert len(np.unique([params[0], *acting[0]], axis=0)) == 3
    np.testing.assert_array_equal(acting[:12], [acting[0]] * 12)
    np.testing.assert_array_equal(acting[12], [params[12], acting[0][1]])
    assert not np.array_equal(params[12], params[0])


def test_a_draw_can_act_for_longer(monkeypatch):
    params, acting = watch_acting(monkeypatch)
    config = dataclasses.replace(TAKING_TURNS, draw_steps=7)  # 6 of each environment: every third, one draw goes
    train(ENVIRONMENT, make_agent, config, HYPER, seed=3)
    table = acting[0].copy()
    for turn, newest in enumerate(params):
        step = turn // 2  # two groups
        if turn >= config.first_block and step % 3 == 0:
            table[step // 3 % 2] = newest
        np.testing.assert_array_equal(acting[turn], table)
    assert len(np.unique(np.array(acting)[:, 0], axis=0)) > 3


@pytest.mark.parametrize("num_chains", [1, 2])
def test_draws_of_an_ensemble_share_its_prior_networks(monkeypatch, num_chains):
    runs = []
    monkeypatch.setattr(external_run.Run, "close", lambda run: (runs.append(run), run.evaluator.close()))
    make = lambda spaces, hyper: agents.make_agent(
        "bootstrapped_dqn", spaces, {"step_size": hyper["step_size"]}, agents.Options(hidden=(8,), num_members=3)
    )
    config = dataclasses.replace(CONFIG, num_draws=2, num_chains=num_chains, num_steps=80)
    # Not from the functions compiled for the other agent.
    monkeypatch.setattr(external, "external_steps", external_steps)
    outcome = train(ENVIRONMENT, make, config, HYPER, seed=0)
    draws = runs[0].lanes.draws
    assert jax.tree.leaves(outcome.agent.frozen)
    assert not jax.tree.leaves(draws.frozen)
    for leaf in jax.tree.leaves(draws.sampler.params):
        assert leaf.shape[:2] == ((2, 2) if num_chains == 2 else (2, 3))
    assert len(outcome.curve) == 2


def test_lanes_are_dealt_out_to_policies():
    act = lambda keys, policy, context, seen: 1000 * policy + 100 * keys + 10 * context + seen
    policies, lanes = jnp.array([1, 2, 3]), jnp.arange(6)
    actions = deal(act, 3, policies, lanes, lanes, lanes)
    np.testing.assert_array_equal(actions, [1000, 2111, 3222, 1333, 2444, 3555])
    fewer = deal(act, 3, policies, lanes[:4], lanes[:4], lanes[:4])
    np.testing.assert_array_equal(fewer, actions[:4])


def test_a_group_tallies_episodes_and_changes_of_action():
    group, rng, arrivals = Group(ENVIRONMENT, 3), np.random.default_rng(0), []
    group.begin(0, np.zeros(3, int))
    for _ in range(40):
        arrivals.append(group.receive())
        group.send(rng.integers(0, ENVIRONMENT.num_actions, 3))
    arrivals.append(group.receive())
    group.close()
    num_ended = ended_return = num_followed = num_changes = 0
    for lane in range(3):
        steps = [(bool(one.is_first[lane]), int(one.action[lane]), float(one.reward[lane])) for one in arrivals]
        starts = [i for i, (is_first, *_) in enumerate(steps) if is_first]
        for start, end in itertools.pairwise([*starts, len(steps)]):
            actions = [action for _, action, _ in steps[start + 1 : end]]
            num_followed += max(len(actions) - 1, 0)
            num_changes += sum(one != other for one, other in itertools.pairwise(actions))
        # The last episode may be under way.
        for start, end in itertools.pairwise(starts):
            num_ended, ended_return = num_ended + 1, ended_return + sum(r for *_, r in steps[start + 1 : end])
        last = steps[starts[-1] + 1 :]
        if len(last) == LENGTHS[(len(starts) - 1) % 3]:
            num_ended, ended_return = num_ended + 1, ended_return + sum(r for *_, r in last)
    assert group.counts == (num_ended, ended_return, num_followed, num_changes)
    assert 0 < num_changes < num_followed


def test_environments_reset_at_their_own_times(monkeypatch):
    """Without it, environments that start alike stay alike."""
    begun = []

    def reset_lanes(env, mask):
        begun.append(mask.copy())
        for lane in np.flatnonzero(mask):
            env.envs[lane].reset()
        return np.stack([each.unwrapped.seen() for each in env.envs])

    runs = []
    monkeypatch.setattr(external_run.Run, "close", lambda run: (runs.append(run), run.evaluator.close()))
    config = dataclasses.replace(CONFIG, num_steps=80, num_stagger_turns=8, n_step=1)
    train(ENVIRONMENT._replace(reset_lanes=reset_lanes), make_agent, config, HYPER, 0)
    assert [np.flatnonzero(mask).tolist() for mask in begun] == [[1], [2], [3]]
    frames, ring = runs[0].lanes.frames, runs[0].steps.replay
    slots = np.arange(80)
    batch, starts = jax.tree.map(np.asarray, ring.take(frames, slots, 0.5)), np.asarray(ring.is_start(frames, slots))
    assert (batch.next_observation[starts, 1] == batch.observation[starts, 1]).all()
    assert (batch.first_observation[starts, 2] == 0).all()


def test_an_episode_is_played_to_its_end_and_rewards_are_counted_once():
    env = make(3, False)
    returns, lengths = play(env, ENVIRONMENT, lambda time, seen: np.full(3, time % 3), seed=0, max_steps=50)
    np.testing.assert_array_equal(returns, np.full(3, 0 + 10 + 20 + 0 + 1 + 2))
    np.testing.assert_array_equal(lengths, np.full(3, 3))
    cut, _ = play(env, ENVIRONMENT, lambda time, seen: np.zeros(3), seed=0, max_steps=2)
    np.testing.assert_array_equal(cut, np.full(3, 10))


def test_stacks_shift_and_reset():
    frames = lambda *values: np.array(values, np.uint8)[:, None]
    stacks = stacked(None, frames(1, 5), np.ones(2, bool), 3)
    np.testing.assert_array_equal(stacks[..., 0], [[1, 1, 1], [5, 5, 5]])
    stacks = stacked(stacks, frames(2, 6), np.array([False, True]), 3)
    np.testing.assert_array_equal(stacks[..., 0], [[1, 1, 2], [6, 6, 6]])


def test_a_full_disk_is_one_sentence_before_the_run_and_during_it(tmp_path, monkeypatch):
    full = partial(OSError, errno.ENOSPC, "No space left on device")

    def refuse(*arguments):
        raise full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(OSError, match=r"no room for the replay of .* GB .* smaller capacity"):
            Journal(tmp_path / "a", "x", 10, 2, np.zeros((4, 4)))
        assert not (tmp_path / "a" / "frames.bin").exists()
    journal = Journal(tmp_path / "b", "x", 10, 2, np.zeros((4, 4)))
    with monkeypatch.context() as patch:
        done = threading.Event()

        def refuse_and_tell(*arguments):
            done.set()
            raise full()

        patch.setattr(os, "pwrite", refuse_and_tell)
        journal.row(0, np.zeros((4, 4)))
        assert done.wait(600)
        write_on = lambda: [journal.row(1, np.zeros((4, 4))) for _ in range(100)]
        with pytest.raises(OSError, match=r"cannot be kept .* No space left"):
            write_on()
    journal.close()


def test_any_error_of_the_journal_is_raised_and_nothing_hangs(tmp_path, monkeypatch):
    journal = Journal(tmp_path, "x", 10, 2, np.zeros((4, 4)))
    monkeypatch.setattr(os, "pwrite", lambda *arguments: 1 / 0)
    write_on = lambda: [journal.row(i, np.zeros((4, 4))) for i in range(200)]
    with pytest.raises(OSError, match="cannot be kept"):
        write_on()
    journal.close()


@pytest.mark.usefixtures("at_once")
def test_a_last_checkpoint_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    save, keep_end, is_full = checkpoint.save, external_run.Run._keep_end, threading.Event()

    def refuse(path, tree, label, **settings):
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, tree, label, **settings)

    def stop(point):
        if point.step == 80:
            is_full.set()
            signal.raise_signal(signal.SIGINT)

    def fill_the_disk(run):
        is_full.set()
        keep_end(run)

    monkeypatch.setattr(checkpoint, "save", refuse)
    with pytest.raises(OSError, match=r"cannot be kept .* No space left"):
        train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, report=stop, folder=tmp_path / "a")
    # A run that got to its end is not lost with the disk.
    is_full.clear()
    monkeypatch.setattr(external_run.Run, "_keep_end", fill_the_disk)
    said = []
    assert len(train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, folder=tmp_path / "b", say=said.append).curve) == 4
    assert len(said) == 1
    assert "cannot be kept" in said[0]


def test_files_of_a_killed_run_are_no_obstacle(tmp_path, monkeypatch):
    like = (np.zeros(3),)
    journal = Journal(tmp_path, "first", 10, 2, np.zeros((4, 4)))
    journal.snapshot(80, like)
    journal.close()
    (tmp_path / "state.npz.123.partial").write_bytes(b"half")
    monkeypatch.delattr(os, "posix_fallocate")  # as on a Mac
    journal = Journal(tmp_path, "second", 10, 2, np.zeros((4, 4)))
    assert journal.restore(like) is None
    assert journal.snapshots(like) == {}
    journal.row(0, np.ones((4, 4)))
    journal.checkpoint((np.ones(3),), [])
    journal.close()
    assert {path.name for path in tmp_path.iterdir()} == {"frames.bin", "state.npz"}
    again = Journal(tmp_path, "second", 10, 2, np.zeros((4, 4)))
    np.testing.assert_array_equal(again.restore(like)[0], np.ones(3))
    assert again.rows(1)[0].tolist() == np.ones((4, 4)).tolist()
    again.close()


def test_everything_is_closed_even_if_one_close_fails(tmp_path, monkeypatch):
    closed, close = [], Group.close

    def fail(group):
        closed.append(group)
        close(group)
        raise OSError("broken pipe")

    monkeypatch.setattr(Group, "close", fail)
    before = threading.active_count()
    with pytest.raises(OSError, match="broken pipe"):
        train(ENVIRONMENT, make_agent, TAKING_TURNS, HYPER, 3, folder=tmp_path)
    assert len(closed) == 2
    assert threading.active_count() == before


def test_a_worker_that_dies_ends_the_run_and_ctrl_c_is_not_for_workers():
    environment = gym_environment("CartPole-v1", vectorization="async")
    group = Group(environment, 2)
    group.begin(0, np.zeros(2, int))
    group.receive()
    first, second = group._env.unwrapped.processes
    os.kill(first.pid, signal.SIGINT)
    for _ in range(3):
        group.send(np.zeros(2, int))
        group.receive()
    second.kill()
    second.join(600)
    group.send(np.zeros(2, int))
    with pytest.raises((EOFError, OSError)):
        group.receive()
    closing = threading.Thread(target=group.close, daemon=True)
    closing.start()
    closing.join(600)
    assert not closing.is_alive()


@pytest.mark.parametrize("kind", ["missing", "short", "flipped", "another row", "older"])
def test_frames_that_are_lost_are_refused_every_time(tmp_path, kind):
    journal, frames = Journal(tmp_path, "x", 10, 2, np.zeros((4, 4))), tmp_path / "frames.bin"
    for i in range(15):
        journal.row(i, np.full((4, 4), i))
    journal.checkpoint((np.ones(3),), [])
    journal.close()
    data = bytearray(frames.read_bytes())
    stride = len(data) // 12
    if kind == "missing":
        frames.unlink()
    elif kind == "short":
        frames.write_bytes(data[:1000])
    elif kind == "flipped":
        data[5 * stride + 17] ^= 4
        frames.write_bytes(data)
    elif kind == "another row":
        data[5 * stride : 6 * stride] = data[6 * stride : 7 * stride]
        frames.write_bytes(data)
    else:
        data[: 12 * stride] = bytes(12 * stride)
        frames.write_bytes(data)
    for _ in range(2):
        journal = Journal(tmp_path, "x", 10, 2, np.zeros((4, 4)))
        with pytest.raises(ValueError, match=r"has lost its frames: .*; delete .* to start again"):  # noqa: PT012
            journal.restore((np.zeros(3),))
            journal.rows(15)
        journal.close()


def test_frames_that_are_a_symbolic_link_are_refused_and_their_target_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "frames.bin").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(ValueError, match=r"frames.bin must not be a symbolic link; remove it"):
        Journal(tmp_path / "run", "x", 10, 2, np.zeros((4, 4)))
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("loss", ["damaged", "deleted"])
def test_an_evaluation_whose_policy_is_lost_leaves_the_curve_and_is_reported(tmp_path, monkeypatch, loss):
    settings = {"folder": tmp_path, "label": "telling"}

    def die(run):
        run.journal.flush()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(external_run.Evaluator, "_seat", lambda evaluator, place, asked: threading.Event().wait(600))
        patch.setattr(external_run.Evaluator, "close", lambda evaluator: None)
        patch.setattr(external_run.Run, "_keep_end", lambda run: (run._checkpoint(), die(run)))
        with pytest.raises(Killed):
            train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, **settings)
    lost = tmp_path / "evaluating-80.npz"
    lost.write_bytes(b"damaged") if loss == "damaged" else lost.unlink()
    said = []
    outcome = train(ENVIRONMENT, make_agent, CONFIG, HYPER, 3, say=said.append, **settings)
    assert [point.step for point in outcome.curve] == [0, 160, 240]
    assert all(np.isfinite(point.return_) for point in outcome.curve)
    assert any(text.startswith("the evaluation at step 80 is lost") for text in said)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    like = (np.zeros(3),)
    journal = Journal(tmp_path, "x", 10, 4, np.zeros((4, 4)))
    for i in range(24):
        journal.row(i, np.full((4, 4), float(i)))
        if i in (19, 21):
            journal.checkpoint((np.full(3, i + 1.0),), [])
    journal.close()
    (tmp_path / "state.npz").write_bytes((tmp_path / "state.npz").read_bytes()[:100])
    journal = Journal(tmp_path, "x", 10, 4, np.zeros((4, 4)))
    with pytest.warns(UserWarning, match="continuing from the checkpoint before it"):
        (found,) = journal.restore(like)
    assert found[0] == 20
    assert journal.rows(20)[:, 0, 0].tolist() == list(range(10, 20))
    journal.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_chains": 3}, r"num_envs must be a multiple of num_groups \* num_chains = 1 \* 3, got 4"),
        ({"num_groups": 3}, r"num_envs must be a multiple of num_groups \* num_chains = 3 \* 1, got 4"),
        ({"capacity": 20}, "capacity"),
        ({"batch_size": 0}, "batch_size"),
        ({"evaluation_period": 2}, "evaluation_period"),
        ({"replay_ratio": 0.123456789}, "replay_ratio must be a fraction .* got 0.123456789"),
        ({"replay_ratio": -1.0}, "replay_ratio must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, named):
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(CONFIG, **change)


def test_acting_and_learning_are_compiled_once_and_before_the_first_step():
    seen, compiled = [], []

    def weakly_typed(spaces, hyper):
        agent = make_agent(spaces, hyper)

        def update(key, state, *rest):
            state, info = agent.update(key, state, *rest)
            return state._replace(reward_scale=state.reward_scale * jnp.ones(())), info

        return agent._replace(init=lambda key: agent.init(key)._replace(reward_scale=jnp.full((), 1.0)), update=update)

    class Watched(Telling):
        def step(self, action):
            seen.append(list(compiled))
            return super().step(action)

    def listen(event, seconds, **about):
        if "backend_compile" in event and about["fun_name"] in ("jit(act)", "jit(learn_block)"):
            compiled.append(about["fun_name"])

    environment = vector_environment(
        lambda n, _: SyncVectorEnv([Watched] * n, autoreset_mode=AutoresetMode.NEXT_STEP), "watched"
    )
    config = dataclasses.replace(CONFIG, num_steps=80, batch_size=5)  # for which nothing is compiled yet
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        outcome = train(environment, weakly_typed, config, HYPER, seed=0)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert np.isfinite(outcome.curve[-1].potential)
    assert seen[0] == compiled == ["jit(act)", "jit(learn_block)"]


def test_an_environment_s_own_error_reaches_the_caller():
    class Breaking(Telling):
        def step(self, action):
            if self.episode == 2:
                raise RuntimeError("the emulator is gone")
            return super().step(action)

    environment = vector_environment(
        lambda n, _: SyncVectorEnv([Breaking] * n, autoreset_mode=AutoresetMode.NEXT_STEP), "breaking"
    )
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="the emulator is gone"):
        train(environment, make_agent, CONFIG, HYPER, seed=0)
    assert threading.active_count() == before


def test_learning_starts_while_actions_are_still_being_chosen(monkeypatch):
    begun, step = threading.Event(), Group._step

    def later(group, actions):
        assert begun.wait(600), "nobody learns while a group waits for its actions"
        return step(group, actions)

    learn = external_run.Run._learn
    monkeypatch.setattr(Group, "_step", later)
    monkeypatch.setattr(external_run.Run, "_learn", lambda run: (learn(run), begun.set()))
    outcome = train(ENVIRONMENT, make_agent, CONFIG, HYPER, seed=0)
    assert outcome.num_steps == CONFIG.num_steps
    assert outcome.seconds["stepping"] > 0


@pytest.mark.parametrize(
    ("num_envs", "num_groups", "learning_starts"), [(9, 1, 20), (9, 3, 1), (4, 2, 24), (300, 3, 20_000)]
)
def test_updates_begin_with_the_first_whole_block_after_learning_starts(num_envs, num_groups, learning_starts):
    config = ExternalConfig(num_envs=num_envs, num_groups=num_groups, learning_starts=learning_starts)
    lanes, block = config.num_lanes, config.turns_per_block
    is_due = lambda turns: turns > num_groups and turns * lanes >= learning_starts and turns % block == 0
    assert config.first_block == next(filter(is_due, itertools.count(1)))
