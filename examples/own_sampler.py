"""A sampler of your own in a DQN agent, and in Algorithm 1 on a linear MDP with its exact regret."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import feelgood
from feelgood import envs, linear, networks, objectives, samplers
from feelgood.agents import value_agent


def tamed(step_size, inverse_temperature=1.0):
    """Langevin with a drift that no gradient makes longer than 1: w − τ∇U / (1 + τ‖∇U‖) + √(2τ/β) ξ."""

    def step(key, state, potential):
        w, unravel = ravel_pytree(state.params)
        value, gradient = jax.value_and_grad(lambda w: potential(unravel(w)))(w)
        drift = step_size * gradient / (1 + step_size * jnp.linalg.norm(gradient))
        noise = jnp.sqrt(2 * step_size / inverse_temperature) * jax.random.normal(key, w.shape)
        info = samplers.Info(value, jnp.float32(1), jnp.int32(1), jnp.int32(0))
        return samplers.SamplerState(unravel(w - drift + noise)), info

    return samplers.Sampler(samplers.SamplerState, step)


def tamed_dqn(spaces, hyper):
    model = lambda key: networks.mlp(key, spaces.observation_shape, (32,), spaces.num_actions)
    objective = objectives.td() + objectives.feel_good(0.1)
    return value_agent(networks.network(model), objective, tamed(hyper["step_size"], 1e3))


def main(num_steps: int = 2000, num_episodes: int = 100):
    chain = envs.nchain(4)._replace(encode=lambda observation: observation, decode=lambda code: code)
    result = feelgood.train(tamed_dqn, chain, num_steps=num_steps, seeds=range(8), hyper={"step_size": 0.2})
    mdp = linear.mdps.combination_lock(horizon=3, num_actions=2)
    scheme = linear.Scheme(lambda stage: tamed(0.5 / stage.largest))
    learner = linear.lsvi_ase(mdp.features, 3, scheme, num_updates=32, loss_weight=30.0, feel_good_weight=1.0)
    regret = jax.jit(lambda key: linear.learn(key, mdp, learner, num_episodes).regret)(jax.random.key(0))
    returns = result.curve.groupby("seed")["return"].last()
    print(
        "return of eight seeds, 10 at best:", returns.mean(), "; regret", regret[:10].mean(), "to", regret[-10:].mean()
    )
    return result, regret


if __name__ == "__main__":
    main()
