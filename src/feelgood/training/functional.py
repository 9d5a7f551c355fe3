"""Training on functional environments, as one compiled program.

One run is a pure function of a key and of hyper-parameters, and `vmap` makes many runs of it. A run alternates
environment steps with fixed parameters and blocks of gradient steps (`feelgood.training.learning`). Everything periodic
depends on counts that all runs share, so that under `vmap` only one branch of each condition runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import Agent, AgentState, Spaces, check_values, constant, one_chain_an_episode, strongly_typed
from feelgood.envs import Environment, Step, check_environment
from feelgood.envs.base import observation_bound
from feelgood.replay import ReplayState, Transition, replay
from feelgood.samplers.base import is_finite
from feelgood.training.config import FunctionalConfig
from feelgood.training.learning import learn
from feelgood.typing import Array, PRNGKey, Scalar


class Episode(NamedTuple):
    """The current state of an environment within its episode; observations are in code."""

    environment: Any
    observation: Any
    first_observation: Any
    context: Any
    return_: Array


class RunState(NamedTuple):
    """The complete state of a run between two chunks; `totals` are those of a `Tally`, if there is one."""

    key: PRNGKey
    agent: AgentState
    episode: Episode
    replay: ReplayState
    totals: Any = ()


class Tally(NamedTuple):
    """Totals over the training episodes of a run, such as bsuite's.

    Attributes:
      init: totals before the first step, a pytree of arrays.
      add: `(totals, ended, returns, states) -> totals` with the steps of one evaluation period along the first axis:
        whether each step ended an episode, the return of its episode so far, and the environment's state after it.
    """

    init: Any
    add: Callable[[Any, Array, Array, Any], Any]


class Record(NamedTuple):
    """Measurements of one evaluation period.

    Attributes:
      evaluation: mean return of the evaluation at its end.
      num_episodes: training episodes that ended in it.
      num_successes: the number of these that reached `success_return`.
      first_success: environment step, counted from the start of the period, at which the first of them ended; the
        period's length if there was none.
      training_return: sum of the returns of the training episodes that ended in it.
      potential: mean of the potential over its gradient steps; NaN if there were none.
      is_finite: whether all parameters were finite at its end.
    """

    evaluation: Array
    num_episodes: Array
    num_successes: Array
    first_success: Array
    training_return: Array
    potential: Array
    is_finite: Array


class Trainer(NamedTuple):
    """One run as pure functions.

    Attributes:
      init: `(key, hyper) -> state`, before the first step.
      evaluate: `(key, state, hyper) -> mean return`.
      advance: `(state, hyper, chunk) -> (state, Record)`, one evaluation period; `chunk` counts from 0 and must be the
        same for all runs of a `vmap` (leave it unmapped).
    """

    init: Callable[[PRNGKey, Any], RunState]
    evaluate: Callable[[PRNGKey, RunState, Any], Array]
    advance: Callable[[RunState, Any, Any], tuple[RunState, Record]]


def functional_spaces(environment: Environment) -> Spaces:
    """The spaces for which an agent is made."""
    spec = environment.spec
    bound = observation_bound(spec.observation_low, spec.observation_high)
    return Spaces(spec.observation_shape, spec.num_actions, environment.decode, spec.is_one_hot, bound)


def trainer(
    environment: Environment,
    make_agent: Callable[[Spaces, Any], Agent],
    config: FunctionalConfig,
    schedule: Callable[[Any, Scalar], Any] = constant,
    tally: Tally | None = None,
) -> Trainer:
    """Builds the functions of one run.

    Args:
      environment: it must have a `max_episode_steps`.
      make_agent: `(spaces, hyper) -> Agent`; called with traced hyper-parameters.
      config: settings of the run.
      schedule: `(hyper, progress) -> hyper`, the hyper-parameters at `progress` in [0, 1] of the budget; called at the
        start of each block.
      tally: totals to keep in `RunState.totals`, if any.

    Examples:
      >>> import jax
      >>> from feelgood import agents, envs
      >>> make_agent = lambda spaces, hyper: agents.make_agent("dqn", spaces, hyper)
      >>> run = trainer(envs.mountain_car(max_episode_steps=5), make_agent, FunctionalConfig(num_steps=1000))
      >>> start = jax.jit(lambda key, hyper: run.evaluate(key, run.init(key, hyper), hyper))
      >>> float(start(jax.random.key(0), {"step_size": 1e-3}))  # an untrained agent, five steps an episode
      -5.0
    """
    spec, max_steps = environment.spec, environment.spec.max_episode_steps
    if max_steps is None:
        raise ValueError("max_episode_steps of a functional environment must be a number for training, got None")
    check_environment(environment)
    spaces = functional_spaces(environment)
    num_blocks = config.evaluation_period // config.train_frequency
    acting = lambda agent: one_chain_an_episode(agent, config.num_chains)

    # A start that never changes is put into the minibatches instead of the replay, once for all transitions.
    shape = jax.eval_shape(lambda key: environment.encode(environment.reset(key)[1]), jax.random.key(0))
    code, action_dtype = jnp.zeros(shape.shape, shape.dtype), np.min_scalar_type(spec.num_actions - 1)
    start = environment.encode(environment.reset(jax.random.key(0))[1]) if spec.fixed_start else None
    stored_first = lambda first: first if start is None else jnp.zeros((0,), jnp.uint8)
    example = Transition(code, jnp.zeros((), action_dtype), jnp.zeros(()), False, False, code, stored_first(code))
    uniform, prioritised = (
        replay(config.capacity, example, n_step=config.n_step, priority_exponent=exponent)
        for exponent in (None, config.priority_exponent)
    )
    replay_of = lambda agent: uniform if agent.priorities is None else prioritised

    def with_start(agent: Agent) -> Agent:
        """The agent; its minibatches have the first observation even if it is not stored."""
        if start is None:
            return agent
        put = lambda batch: batch._replace(first_observation=start[None])
        given = lambda function: lambda key, state, batch, *rest: function(key, state, put(batch), *rest)
        priorities = None if agent.priorities is None else given(agent.priorities)
        return agent._replace(update=given(agent.update), priorities=priorities)

    def begin(key: PRNGKey, agent: Agent) -> Episode:
        key_reset, key_context = jax.random.split(key)
        state, observation = environment.reset(key_reset)
        code = environment.encode(observation)
        return Episode(state, code, code, agent.begin(key_context), jnp.zeros(()))

    def stepped(key: PRNGKey, episode: Episode, action: Array) -> tuple[Episode, Step]:
        state, step = environment.step(key, episode.environment, action)
        successor, return_ = environment.encode(step.observation), episode.return_ + step.reward
        return episode._replace(environment=state, observation=successor, return_=return_), step

    def collect(agent: Agent, state: AgentState, progress: Scalar, episode: Episode, key: PRNGKey):
        """Takes a step. Returns the episode after it, or the next one, and the transition, whether the step ended the
        episode, the return of the episode so far, and the environment's state."""
        key_act, key_step, key_begin = jax.random.split(key, 3)
        action = agent.explore(key_act, state, episode.context, episode.observation, progress)
        after, step = stepped(key_step, episode, action)
        ended = step.terminated | step.truncated
        there = jax.tree.map(lambda new, old: jnp.where(ended, new, old), begin(key_begin, agent), after)
        taken = episode.observation, action.astype(action_dtype), step.reward, step.terminated, step.truncated
        transition = Transition(*taken, after.observation, stored_first(episode.first_observation))
        return there, (transition, ended, after.return_, after.environment)

    def play_episode(key: PRNGKey, agent: Agent, state: AgentState) -> Array:
        """The return of one evaluation episode."""

        def play(carry, key):
            episode, ended = carry
            key_act, key_step = jax.random.split(key)
            action = agent.exploit(key_act, state, episode.context, episode.observation)
            after, step = stepped(key_step, episode, action)
            after = after._replace(return_=jnp.where(ended, episode.return_, after.return_))
            return (after, ended | step.terminated | step.truncated), None

        key_begin, key_play = jax.random.split(key)
        keys = jax.random.split(key_play, max_steps)
        return jax.lax.scan(play, (begin(key_begin, agent), jnp.zeros((), bool)), keys)[0][0].return_

    def init(key: PRNGKey, hyper: Any) -> RunState:
        agent = make_agent(spaces, schedule(hyper, 0.0))
        check_values(agent, code, spec.num_actions)
        key_init, key_begin, key_run = jax.random.split(key, 3)
        data, agent = replay_of(agent).init(), acting(agent)
        state, totals = strongly_typed(agent.init(key_init)), () if tally is None else tally.init
        return RunState(key_run, state, begin(key_begin, agent), data, totals)

    def evaluate(key: PRNGKey, run: RunState, hyper: Any) -> Array:
        agent = acting(make_agent(spaces, hyper))
        play = lambda key: play_episode(key, agent, run.agent)
        if not (agent.is_random or spec.is_random):
            return play(key)
        return jnp.mean(jax.vmap(play)(jax.random.split(key, config.num_evaluation_episodes)))

    def block(run: RunState, hyper: Any, index: Scalar):
        """Steps the environment, then learns; `index` counts the blocks of the run.

        Returns the run after it, and whether each step ended an episode, the returns then, the environment's states
        for a tally, and the mean potential.
        """
        key_next, key_collect, key_batches, key_updates = jax.random.split(run.key, 4)
        progress = index * config.train_frequency / config.num_steps
        agent = make_agent(spaces, schedule(hyper, progress))
        keys = jax.random.split(key_collect, config.train_frequency)
        step = partial(collect, acting(agent), run.agent, progress)
        episode, (transitions, ended, returns, states) = jax.lax.scan(step, run.episode, keys)
        ring = replay_of(agent)
        data = ring.add_batch(run.replay, transitions)
        num_learnt, agent = index - config.first_block, with_start(agent)
        # The replay itself does not pass through the branch, so that XLA need not copy it.
        state, priorities, potential = jax.lax.cond(
            num_learnt >= 0,
            lambda state: learn(key_batches, key_updates, agent, ring, config, state, data, num_learnt, progress),
            lambda state: (state, data.priorities, jnp.zeros(())),
            run.agent,
        )
        data = data._replace(priorities=priorities)
        kept = () if tally is None else states
        return RunState(key_next, state, episode, data, run.totals), (ended, returns, kept, potential)

    def advance(run: RunState, hyper: Any, chunk: Any) -> tuple[RunState, Record]:
        indices = chunk * num_blocks + jnp.arange(num_blocks)
        run, (*blocks, potentials) = jax.lax.scan(lambda run, index: block(run, hyper, index), run, indices)
        ended, returns, states = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), blocks)
        if tally is not None:
            run = run._replace(totals=tally.add(run.totals, ended, returns, states))
        key_next, key_evaluate = jax.random.split(run.key)
        success = ended & (returns >= config.success_return)
        times = 1 + jnp.arange(config.evaluation_period)
        learns = indices >= config.first_block
        record = Record(
            evaluation=evaluate(key_evaluate, run, hyper),
            num_episodes=jnp.sum(ended),
            num_successes=jnp.sum(success),
            first_success=jnp.min(jnp.where(success, times, config.evaluation_period)),
            training_return=jnp.sum(jnp.where(ended, returns, 0.0)),
            potential=jnp.sum(jnp.where(learns, potentials, 0.0)) / jnp.sum(learns),
            is_finite=is_finite(run.agent.sampler.params),
        )
        return run._replace(key=key_next), record

    return Trainer(init, evaluate, advance)
