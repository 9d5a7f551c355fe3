"""`check_environment` accepts valid environments and names the rule that others break."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.agents import Options
from feelgood.envs import Environment, Spec, Step, check_environment, nchain
from feelgood.envs.conversion import functional_as_external
from feelgood.envs.diagnostic import DIAGNOSTICS
from feelgood.training import FunctionalConfig, trainer
from feelgood.training.policy import zoo_agent

FALSE = jnp.zeros((), bool)


def environment(reset=None, **changes):
    """An environment with an observation of two numbers and a count as its state, but for `changes` of its steps."""

    def step(key, state, action):
        del key, action
        good = {"observation": jnp.zeros(2), "reward": jnp.ones(()), "terminated": FALSE, "truncated": FALSE}
        return changes.get("state", state + 1), Step(**{**good, **{k: v for k, v in changes.items() if k in good}})

    reset = reset or (lambda key: (jnp.zeros((), jnp.int32), jnp.zeros(2)))
    return Environment(reset, changes.get("step", step), Spec((2,), np.dtype(np.float32), 2, 4))


def test_good_environments_pass_and_nothing_of_them_is_run():
    for made in (environment(), nchain(5), *(make().environment for make in DIAGNOSTICS.values())):
        check_environment(made)
    calls = []

    def reset(key):
        jax.debug.callback(lambda: calls.append("reset"))
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    check_environment(environment(reset))
    jax.effects_barrier()
    assert not calls


@jax.tree_util.register_pytree_node_class
class Nameless:
    """A node whose text contains its address in memory."""

    def __init__(self, *parts):
        self.parts = parts

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)


def test_states_of_any_pytree_pass():
    began = Nameless(Nameless(jnp.zeros(())), Nameless(jnp.zeros((), jnp.int32), jnp.zeros(3)))
    step = lambda key, state, action: (jax.tree.map(lambda x: x + 1, state), Step(jnp.zeros(2), 1.0, False, False))
    for _ in range(5):
        check_environment(environment(lambda key: (began, jnp.zeros(2)), step=step))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (environment(lambda key: (jnp.zeros(2), jnp.zeros((), jnp.int32))), r"\(state, observation\) with .* \(2,\)"),
        (environment(lambda key: jnp.zeros(2)), r"must return \(state, observation\).*, got float32\[2\]"),
        (environment(step=lambda key, state, action: (state, jnp.zeros(2), 1.0)), r"must return \(state, Step\)"),
        (environment(observation=jnp.zeros(3)), r"observation of an environment's step must have shape \(2,\)"),
        (environment(observation=jnp.zeros(2, jnp.uint8)), "must be float32, as in its spec, got uint8"),
        (environment(lambda key: (jnp.int32(0), jnp.zeros(2, int))), "must be float32, as in its spec, got int32"),
        (environment(reward=jnp.ones((1,))), r"reward of an environment's step must have shape \(\), got \(1,\)"),
        (environment(terminated=jnp.zeros(())), "terminated of an environment's step must be bool, got float32"),
        (environment(truncated=jnp.zeros((), int)), "truncated of an environment's step must be bool, got int32"),
        (environment(state=jnp.zeros(())), r"a state like that of reset, int32\[\], got float32\[\]"),
    ],
)
def test_a_wrong_environment_is_refused_before_training(wrong, message):
    train = lambda made: trainer(made, zoo_agent("dqn", Options()), FunctionalConfig())
    for use in (check_environment, functional_as_external, train):
        with pytest.raises(ValueError, match=message):
            use(wrong)
