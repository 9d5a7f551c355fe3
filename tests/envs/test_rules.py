"""Each rule of an environment, and one that breaks it; Gymnasium's own checker is the second opinion."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from feelgood.cli import main
from feelgood.envs.rules import check_rules


class Walk(gymnasium.Env):
    """A walk of five steps, which keeps all rules."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(), {}

    def see(self):
        return np.full(1, self.time, np.float32)

    def step(self, action):
        self.time += 1
        return self.see(), 1.0, self.time == 5, False, {}


class Wide(Walk):
    action_space = gymnasium.spaces.Box(0, 1, (2,))


class Ragged(Walk):
    observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))


class Bare(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Shapeless(Walk):
    def see(self):
        return np.zeros(3, np.float32)


class Outside(Walk):
    def see(self):
        return np.full(1, 4.0 * self.time, np.float32)


class Lost(Walk):
    def see(self):
        return np.full(1, np.nan if self.time == 2 else 0, np.float32)


class Fickle(Walk):
    def see(self):
        return np.random.default_rng().uniform(0, 9, 1).astype(np.float32)  # not the environment's own generator


class Short(Walk):
    def step(self, action):
        return super().step(action)[:4]


class Priceless(Walk):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return (seen, float("nan"), *rest)


class Numeric(Walk):
    def step(self, action):
        seen, reward, terminated, *rest = super().step(action)
        return (seen, reward, int(terminated), *rest)


class Endless(Walk):
    def step(self, action):
        return self.see(), 0.0, False, False, {}


class Failing(Walk):
    def step(self, action):
        raise ZeroDivisionError("no luck")


def last(kind):
    return check_rules(kind, num_steps=50)[-1]


def test_an_environment_that_keeps_the_rules_has_no_problem():
    assert all(not finding.problem for finding in check_rules(Walk, num_steps=50))
    check_env(Walk(), skip_render_check=True)


@pytest.mark.parametrize(
    ("kind", "rule", "problem"),
    [
        (Wide, "actions are the whole numbers from 0", "action_space must be Discrete"),
        (Ragged, "observations have a fixed size", "observation_space must be a space of fixed size"),
        (Bare, "reset returns an observation and a dictionary", "reset(seed=…) must return (observation, info)"),
        (Shapeless, "observations are in the observation space", "shape (3,), observation_space has (1,)"),
        (Outside, "50 random steps keep all rules of a step", "step 3 returned array([12.], dtype=float32), outside"),
        (Lost, "50 random steps keep all rules of a step", "step 2 returned an observation that is not finite"),
        (Fickle, "the same seed gives the same first observation", "different observations"),
        (Short, "50 random steps keep all rules of a step", "step must return (observation, reward, terminated"),
        (Priceless, "50 random steps keep all rules of a step", "step 1 returned the reward nan, not a finite number"),
        (Numeric, "50 random steps keep all rules of a step", "step 1 returned terminated = 0, not True or False"),
        (Endless, "episodes end", "no episode ended in 50 random steps"),
        (Failing, "50 random steps keep all rules of a step", "it raised ZeroDivisionError: no luck"),
        (lambda: 3, "it can be made", "it must be a gymnasium.Env, got 3"),
    ],
)
def test_the_rule_that_is_broken_is_named(kind, rule, problem):
    found = last(kind)
    assert found.rule == rule
    assert problem in found.problem


def test_the_command_prints_every_rule_and_exits_with_one_if_one_is_broken(capsys):
    gymnasium.register("feelgood-tests/Walk-v0", Walk)
    gymnasium.register("feelgood-tests/Endless-v0", Endless)
    main(["check", "feelgood-tests/Walk-v0", "--num-steps", "20"])
    said = capsys.readouterr().out
    assert said.count("ok: ") == 8
    assert said.endswith("keeps all rules; next: feelgood train --env feelgood-tests/Walk-v0\n")
    with pytest.raises(SystemExit) as caught:
        main(["check", "feelgood-tests/Endless-v0", "--num-steps", "20"])
    assert caught.value.code == 1
    assert "broken: episodes end: no episode ended in 20 random steps" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["check", "NoSuchThing-v0"])
    assert caught.value.code == 1
    assert "broken: it can be made: it raised NameNotFound" in capsys.readouterr().out
