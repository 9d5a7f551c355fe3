"""Training wholly inside XLA: one run is one pure function of a key and of hyper-parameters; `vmap` makes it many.

A run alternates blocks: a few environment steps with the network held fixed, then gradient steps, each on a minibatch
of its own. Everything periodic is a nested scan over static counts, so that under `vmap` no branch is taken twice.

Agents with priorities learn from minibatches drawn by them. A block draws all its minibatches at its start, by the
priorities as they are then, and sets the new ones after its last update.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import Agent, AgentState, Spaces, check_values, constant
from feelgood.checks import check_count, check_non_negative, check_probability
from feelgood.envs import Environment, check_environment
from feelgood.replay import Batch, Replay, ReplayState, Transition, replay
from feelgood.typing import Array, PRNGKey, Scalar

__all__ = ["Protocol", "Record", "RunState", "Trainer", "trainer"]


@dataclass(frozen=True)
class Protocol:
    """How a run goes; all static. The defaults are the released N-chain protocol.

    Attributes:
      num_steps: environment steps in all, those of the warm-up not counted.
      num_warmup_steps: environment steps before the first update.
      steps_per_block: environment steps between two blocks of updates.
      num_updates: J, gradient steps per environment step.
      batch_size: transitions in a minibatch.
      capacity: of the replay.
      n_step: steps that a return spans.
      discount: of future rewards.
      target_period: gradient steps between two copies to the target network.
      evaluation_period: environment steps between two evaluations.
      num_evaluation_episodes: episodes averaged in an evaluation; one is played where all would be the same, as neither
        the agent draws anything nor the environment (`Spec.is_random`).
      success_return: return at which an episode counts as a success.
      priority_exponent: α of the replay of agents with priorities.
      importance_exponent: β at the start of a run of such an agent; it rises linearly to 1 at the end.
    """

    num_steps: int = 100_000
    num_warmup_steps: int = 32
    steps_per_block: int = 10
    num_updates: int = 4
    batch_size: int = 32
    capacity: int = 10_000
    n_step: int = 1
    discount: float = 0.99
    target_period: int = 100
    evaluation_period: int = 1_000
    num_evaluation_episodes: int = 20
    success_return: float = math.inf
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4

    def __post_init__(self):
        for name in (
            "num_steps",
            "num_warmup_steps",
            "steps_per_block",
            "num_updates",
            "batch_size",
            "capacity",
            "n_step",
            "target_period",
            "evaluation_period",
            "num_evaluation_episodes",
        ):
            check_count(name, getattr(self, name))
        check_probability("discount", self.discount)
        check_non_negative("priority_exponent", self.priority_exponent)
        check_non_negative("importance_exponent", self.importance_exponent)
        if self.evaluation_period % self.steps_per_block:
            raise ValueError(
                f"evaluation_period must be a multiple of steps_per_block = {self.steps_per_block}, "
                f"got {self.evaluation_period}"
            )
        if self.num_steps % self.evaluation_period:
            raise ValueError(
                f"num_steps must be a multiple of evaluation_period = {self.evaluation_period}, got {self.num_steps}"
            )

    @property
    def num_chunks(self) -> int:
        """Evaluation periods in a run."""
        return self.num_steps // self.evaluation_period


class Episode(NamedTuple):
    """Where an environment stands within its episode."""

    environment: Any
    observation: Any
    first_observation: Any
    context: Array
    return_: Array


class RunState(NamedTuple):
    """All that a run is, between two chunks; saved and restored whole."""

    key: PRNGKey
    agent: AgentState
    episode: Episode
    replay: ReplayState


class Record(NamedTuple):
    """What is kept of one evaluation period.

    Attributes:
      evaluation: mean return of the evaluation at its end.
      num_episodes: training episodes finished in it.
      num_successes: of these, how many reached `success_return`.
      first_success: environment step, counted from the start of the period, at which the first of them ended; the
        period's length where there was none.
      training_return: sum of the returns of the training episodes finished in it.
      potential: mean of the potential over its gradient steps.
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
      init: `(key, hyper) -> state`, warm-up included.
      evaluate: `(key, state, hyper) -> mean return`.
      advance: `(state, hyper, chunk) -> (state, Record)`, one evaluation period; `chunk` counts from 0 and must be the
        same for all runs of a `vmap` (leave it unmapped).
    """

    init: Callable[[PRNGKey, Any], RunState]
    evaluate: Callable[[PRNGKey, RunState, Any], Array]
    advance: Callable[[RunState, Any, Any], tuple[RunState, Record]]


def trainer(
    environment: Environment,
    make_agent: Callable[[Spaces, Any], Agent],
    protocol: Protocol,
    schedule: Callable[[Any, Scalar], Any] = constant,
) -> Trainer:
    """Builds the functions of one run.

    Args:
      environment: a functional environment.
      make_agent: `(spaces, hyper) -> Agent`; called with traced hyper-parameters.
      protocol: how the run goes.
      schedule: `(hyper, progress) -> hyper`, what the hyper-parameters are at `progress` in [0, 1] of the budget;
        looked up at the start of each block.
    """
    spec = environment.spec
    if spec.max_episode_steps is None:
        raise ValueError("environment must bound its episodes for training inside XLA, got max_episode_steps = None")
    check_environment(environment)
    max_episode_steps = spec.max_episode_steps
    spaces = Spaces(spec.observation_shape, spec.num_actions, environment.decode)
    code = jax.eval_shape(lambda key: environment.encode(environment.reset(key)[1]), jax.random.key(0))
    code = jnp.zeros(code.shape, code.dtype)
    action_dtype = np.min_scalar_type(spec.num_actions - 1)
    # A start that never changes is put into the minibatches instead of the replay, once for all transitions.
    first = environment.encode(environment.reset(jax.random.key(0))[1]) if spec.fixed_start else None
    nothing = jnp.zeros((0,), jnp.uint8)
    example = Transition(
        code,
        jnp.zeros((), action_dtype),
        jnp.zeros(()),
        False,
        False,
        code,
        code if first is None else nothing,
    )
    uniform, prioritised = (
        replay(protocol.capacity, example, n_step=protocol.n_step, priority_exponent=exponent)
        for exponent in (None, protocol.priority_exponent)
    )
    updates_per_block = protocol.steps_per_block * protocol.num_updates
    # The longest stretch of gradient steps that neither a block's end nor a target update cuts.
    stretch = math.gcd(updates_per_block, protocol.target_period)

    def ring_of(agent: Agent) -> Replay:
        return uniform if agent.priorities is None else prioritised

    def draw(agent: Agent, key: PRNGKey, data: ReplayState, progress: Scalar) -> Batch:
        """The minibatches of a block, (stretches, updates in a stretch, batch size, ...)."""
        ring, size = ring_of(agent), protocol.batch_size
        shape = (updates_per_block // stretch, stretch)
        if agent.priorities is None:
            batches = ring.sample(key, data, updates_per_block * size, protocol.discount)
            return jax.tree.map(lambda x: x.reshape(*shape, size, *x.shape[1:]), batches)
        # One by one, as the weights of a minibatch are relative to its largest.
        exponent = protocol.importance_exponent + (1 - protocol.importance_exponent) * progress
        one = lambda key: ring.sample(key, data, size, protocol.discount, exponent)
        return jax.vmap(jax.vmap(one))(jax.random.split(key, shape))

    def begin(agent: Agent, key: PRNGKey) -> Episode:
        key_reset, key_context = jax.random.split(key)
        state, observation = environment.reset(key_reset)
        code = environment.encode(observation)
        return Episode(state, code, code, agent.begin(key_context), jnp.zeros(()))

    def collect(agent: Agent, key: PRNGKey, state: AgentState, episode: Episode, num_steps: int, progress: Scalar):
        """Plays `num_steps` steps; returns the episode it is in then, the transitions, and the returns that ended."""

        def play(episode: Episode, key: PRNGKey):
            key_act, key_step, key_begin = jax.random.split(key, 3)
            action = agent.explore(key_act, state, episode.context, episode.observation, progress)
            environment_state, step = environment.step(key_step, episode.environment, action)
            successor = environment.encode(step.observation)
            return_ = episode.return_ + step.reward
            transition = Transition(
                episode.observation,
                action.astype(action_dtype),
                step.reward,
                step.terminated,
                step.truncated,
                successor,
                episode.first_observation if first is None else nothing,
            )
            ended = step.terminated | step.truncated
            going_on = episode._replace(environment=environment_state, observation=successor, return_=return_)
            episode = jax.tree.map(lambda new, old: jnp.where(ended, new, old), begin(agent, key_begin), going_on)
            return episode, (transition, ended, return_)

        return jax.lax.scan(play, episode, jax.random.split(key, num_steps))

    def init(key: PRNGKey, hyper: Any) -> RunState:
        agent = make_agent(spaces, schedule(hyper, 0.0))
        check_values(agent, code, spec.num_actions)
        key_init, key_begin, key_collect, key_run = jax.random.split(key, 4)
        state = agent.init(key_init)
        episode = begin(agent, key_begin)
        episode, (transitions, _, _) = collect(agent, key_collect, state, episode, protocol.num_warmup_steps, 0.0)
        ring = ring_of(agent)
        return RunState(key_run, state, episode, ring.add_batch(ring.init(), transitions))

    def evaluate(key: PRNGKey, run: RunState, hyper: Any) -> Array:
        agent = make_agent(spaces, hyper)

        def play_episode(key: PRNGKey) -> Array:
            def play(carry, key):
                episode, ended = carry
                key_act, key_step = jax.random.split(key)
                action = agent.exploit(key_act, run.agent, episode.context, episode.observation)
                state, step = environment.step(key_step, episode.environment, action)
                return_ = episode.return_ + jnp.where(ended, 0.0, step.reward)
                episode = episode._replace(
                    environment=state, observation=environment.encode(step.observation), return_=return_
                )
                return (episode, ended | step.terminated | step.truncated), None

            key_begin, key_play = jax.random.split(key)
            keys = jax.random.split(key_play, max_episode_steps)
            (episode, _), _ = jax.lax.scan(play, (begin(agent, key_begin), jnp.zeros((), bool)), keys)
            return episode.return_

        if not (agent.is_random or spec.is_random):
            return play_episode(key)
        return jnp.mean(jax.vmap(play_episode)(jax.random.split(key, protocol.num_evaluation_episodes)))

    def advance(run: RunState, hyper: Any, chunk: Any) -> tuple[RunState, Record]:
        num_blocks = protocol.evaluation_period // protocol.steps_per_block

        def block(carry, index):
            run, num_gradients = carry
            key_next, key_collect, key_batches, key_updates = jax.random.split(run.key, 4)
            progress = (chunk * protocol.evaluation_period + index * protocol.steps_per_block) / protocol.num_steps
            agent = make_agent(spaces, schedule(hyper, progress))
            episode, (transitions, ended, returns) = collect(
                agent, key_collect, run.agent, run.episode, protocol.steps_per_block, progress
            )
            data = ring_of(agent).add_batch(run.replay, transitions)
            # The replay stands still during the updates, so all minibatches of the block are drawn at once; what they
            # say of priorities is heard at its end.
            batches = draw(agent, key_batches, data, progress)

            def learn(state: AgentState, inputs):
                key, batch, next_values = inputs
                if first is not None:
                    batch = batch._replace(first_observation=first[None])
                priorities = () if agent.priorities is None else agent.priorities(key, state, batch, next_values)
                state, info = agent.update(key, state, batch, data.size, next_values)
                return state, (info.potential, priorities)

            def stretches(carry, inputs):
                state, count = carry
                keys, batches = inputs
                # The target stands still during a stretch, so it looks at all its minibatches at once.
                next_values = jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)
                state, (potentials, priorities) = jax.lax.scan(learn, state, (keys, batches, next_values))
                count = count + stretch
                state = jax.lax.cond(count % protocol.target_period == 0, agent.sync, lambda state: state, state)
                return (state, count), (jnp.mean(potentials), priorities)

            keys = jax.random.split(key_updates, (updates_per_block // stretch, stretch))
            (state, num_gradients), (potentials, priorities) = jax.lax.scan(
                stretches, (run.agent, num_gradients), (keys, batches)
            )
            if agent.priorities is not None:
                data = prioritised.prioritise(data, batches.slot.ravel(), priorities.ravel())
            success = ended & (returns >= protocol.success_return)
            times = index * protocol.steps_per_block + 1 + jnp.arange(protocol.steps_per_block)
            outcome = (
                jnp.sum(ended),
                jnp.sum(success),
                jnp.min(jnp.where(success, times, protocol.evaluation_period)),
                jnp.sum(jnp.where(ended, returns, 0.0)),
                jnp.mean(potentials),
            )
            return (RunState(key_next, state, episode, data), num_gradients), outcome

        # Modulo the period at every step: in a long run the product itself would overflow.
        period = protocol.target_period
        num_gradients = (chunk % period) * (num_blocks * updates_per_block % period) % period
        (run, _), (episodes, successes, successes_at, returns, potentials) = jax.lax.scan(
            block, (run, num_gradients), jnp.arange(num_blocks)
        )
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(run.agent.sampler.params)]
        key_next, key_evaluate = jax.random.split(run.key)
        record = Record(
            evaluate(key_evaluate, run, hyper),
            jnp.sum(episodes),
            jnp.sum(successes),
            jnp.min(successes_at),
            jnp.sum(returns),
            jnp.mean(potentials),
            jnp.all(jnp.stack(finite)),
        )
        return run._replace(key=key_next), record

    return Trainer(init, evaluate, advance)
