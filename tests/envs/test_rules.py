"""Each rule of an environment, and one that breaks it; Gymnasium's own checker is the second opinion."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from feelgood.cli import main
from feelgood.envs import Environment, Spec, Step
from feelgood.envs.conversion import as_external
from feelgood.envs.rules import check_playable, check_rules, random_return


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


class Late(Walk):
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


class Rounded(Walk):
    observation_space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)


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


class Unseeded(Walk):
    def reset(self):
        return super().reset()


class Wordy(Walk):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return (seen, "much", *rest)


class Words(gymnasium.spaces.Space):
    """A kind of space that is not Gymnasium's own."""


class Spoken(Walk):
    observation_space = gymnasium.spaces.Dict(image=Walk.observation_space, mission=Words())


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
        (
            lambda: gymnasium.wrappers.TimeLimit(Short(), 9),  # unpacks the answer itself
            "50 random steps keep all rules of a step",
            "step must return (observation, reward, terminated, truncated, info); it raised ValueError: not enough",
        ),
        (Unseeded, "reset returns an observation and a dictionary", "reset must take the keyword arguments seed and"),
        (Wordy, "50 random steps keep all rules of a step", "step 1 returned the reward 'much', not a finite number"),
        (Endless, "episodes end", "no episode ended in 50 random steps"),
        (Failing, "50 random steps keep all rules of a step", "it raised ZeroDivisionError: no luck"),
        (lambda: 3, "it can be made", "it must be a gymnasium.Env, got 3"),
    ],
)
def test_the_rule_that_is_broken_is_named(kind, rule, problem):
    found = last(kind)
    assert found.rule == rule
    assert problem in found.problem


@pytest.mark.parametrize("kind", [Walk, Outside, Fickle, Numeric, Endless, Wide, Late])
def test_training_allows_broken_rules_that_do_no_harm_or_are_refused_elsewhere(kind):
    check_playable("mine", kind)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Bare, r"reset\(seed=…\) must return \(observation, info\)"),
        (Shapeless, r"reset returned shape \(3,\), observation_space has \(1,\)"),
        (Lost, "step 2 returned an observation that is not finite"),
        (Rounded, "reset returned dtype float32, observation_space has uint8"),
        (Short, "step must return"),
        (Priceless, "step 1 returned the reward nan"),
        (gymnasium.Env, "it has no action_space"),
        (Ragged, "observation_space must be a space of fixed size, such as a Box, got Sequence"),
        (
            Spoken,
            r"part 'mission' of observation_space has no fixed size, got .*; "
            r"gymnasium.wrappers.FilterObservation\(env, \['image'\]\) leaves it out",
        ),
    ],
)
def test_training_refuses_a_broken_environment_in_a_sentence(kind, problem):
    with pytest.raises(ValueError, match=f"env 'mine' cannot be trained on: {problem}"):
        check_playable("mine", kind)
    with pytest.raises(ValueError, match=f"env '{kind.__name__}' cannot be trained on: {problem}"):
        as_external(kind)


def test_errors_of_the_environment_itself_pass_through():
    with pytest.raises(ZeroDivisionError, match="no luck"):
        check_playable("mine", Failing)


def coins(reward=lambda heads: heads, limit=4):
    """Heads are actions; an episode is over after `limit` of them."""

    def step(key, time, action):
        seen = (time + 1)[None].astype(jnp.float32)
        return time + 1, Step(seen, reward(action.astype(jnp.float32)), time + 1 >= limit, jnp.zeros((), bool))

    spec = Spec((1,), np.dtype(np.float32), num_actions=2, max_episode_steps=4, name="coins")
    return Environment(lambda key: (jnp.int32(0), jnp.zeros(1)), step, spec)


def test_the_return_of_random_actions_in_a_functional_environment():
    # The number of heads among four is 2 on average, with variance 1; nothing counts after the end of an episode.
    assert abs(random_return(coins(), 400) - 2) < 4 / np.sqrt(400)
    assert abs(random_return(coins(limit=1), 400) - 0.5) < 4 * 0.5 / np.sqrt(400)


def test_a_functional_environment_without_end_or_with_lost_numbers_is_refused():
    with pytest.raises(ValueError, match="env 'coins' cannot be trained on: a reward or an observation is not finite"):
        random_return(coins(lambda heads: heads * jnp.nan))
    with pytest.raises(ValueError, match="an episode had not ended after max_episode_steps = 4 steps"):
        random_return(coins(limit=5))


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
