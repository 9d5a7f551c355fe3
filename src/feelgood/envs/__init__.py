"""Environments: functional ones here, and external ones in `feelgood.envs.external`.

`feelgood.envs.conversion` makes external environments from those in any other form.
`feelgood.envs.gym` offers functional environments to Gymnasium.

Examples:
  >>> import gymnasium
  >>> from feelgood import envs
  >>> from feelgood.envs import conversion, external
  >>> make = lambda num_envs, training: gymnasium.make_vec("CartPole-v1", num_envs=num_envs)
  >>> made = [external.gym_environment("CartPole-v1"), external.vector_environment(make, "own")]
  >>> made += [conversion.as_external(gymnasium.make("CartPole-v1")), conversion.as_external(envs.nchain(5))]
  >>> [(env.name, env.observation_shape) for env in made]
  [('CartPole-v1', (4,)), ('own', (4,)), ('CartPole-v1', (4,)), ('nchain-5', (5,))]
"""

from feelgood.envs.base import Environment, Spec, Step, check_environment
from feelgood.envs.control import ControlState, acrobot, cart_pole, mountain_car
from feelgood.envs.deep_sea import DeepSeaState, deep_sea, deep_sea_mapping
from feelgood.envs.nchain import NChainState, nchain

__all__ = [
    "ControlState",
    "DeepSeaState",
    "Environment",
    "NChainState",
    "Spec",
    "Step",
    "acrobot",
    "cart_pole",
    "check_environment",
    "deep_sea",
    "deep_sea_mapping",
    "mountain_car",
    "nchain",
]
