"""Policies: what a run leaves to be used. One acts, is evaluated and filmed; `policy_files` keeps it in a folder."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal
from feelgood.checks import check_choice, check_count, check_positive
from feelgood.envs.external import Task, atari, gym_task
from feelgood.files import atomically
from feelgood.training.evaluation import Evaluator, play
from feelgood.training.machinery import Machinery, machinery
from feelgood.training.protocol import HostProtocol
from feelgood.typing import Array, Scalar

__all__ = ["OWN", "Origin", "Policy", "make_task", "playing_parts", "zoo_agent"]

OWN = "own"
"""For an agent that is not in the zoo, and for a task that only its maker can make again."""
# Keys of evaluation are not those of training with the same seed.
_EVALUATION = 0x65766C


class Origin(NamedTuple):
    """Where a task comes from, in words that can be written down.

    Attributes:
      kind: "gym", "atari", or "own" for a task that only its maker can make again.
      name: the environment's name.
      settings: what else `gym_task` or `atari` was called with.
    """

    kind: str
    name: str
    settings: Mapping[str, Any] = {}


_NOWHERE = Origin(OWN, "custom")


def make_task(origin: Origin) -> Task:
    """Makes the task of an origin.

    Raises:
      ValueError: if it cannot be made, or if its kind is "own".
    """
    makers: dict[str, Callable[..., Task]] = {"gym": gym_task, "atari": atari}
    check_choice("kind of task", origin.kind, makers)
    if origin.kind == "atari":
        _, *allowed = inspect.signature(atari).parameters
        for name in origin.settings:
            check_choice(f"env_settings of {origin.name}", name, allowed)
    try:
        return makers[origin.kind](origin.name, **origin.settings)
    except TypeError as error:
        raise ValueError(f"settings of env {origin.name!r} do not fit: {error}") from error
    except ImportError as error:  # a name such as "package:Name-v0" names a package to load
        raise ValueError(f"env {origin.name!r} cannot be made: {error}") from error


def zoo_agent(name: str, options: Options) -> Callable[[Spaces, Any], Agent]:
    """`(spaces, hyper) -> Agent` of a member of the zoo."""
    check_choice("agent", name, ZOO)
    return lambda spaces, hyper: ZOO[name].make(spaces, hyper, options)


@dataclass(frozen=True, eq=False)
class Policy:
    """A trained agent, as it acts in evaluation.

    Attributes:
      task: the external environment that it plays.
      make_agent: `(spaces, hyper) -> Agent`.
      hyper: the agent's hyper-parameters.
      state: what acting needs of the agent's state; with several chains its arrays have a leading axis.
      agent: the agent's name in the zoo; "own" for another.
      origin: where the task comes from.
      options: of an agent of the zoo.
      num_chains: draws of the posterior that it holds.
      schedule: `(hyper, progress) -> hyper`.
    """

    task: Task
    make_agent: Callable[[Spaces, Any], Agent]
    hyper: Mapping[str, Scalar]
    state: AgentState
    agent: str = OWN
    origin: Origin = _NOWHERE
    options: Options = field(default_factory=Options)
    num_chains: int = 1
    schedule: Callable[[Any, Scalar], Any] = anneal

    @property
    def is_finite(self) -> bool:
        """Whether all its parameters are finite; those of a run that diverged are not."""
        leaves = [leaf for leaf in jax.tree.leaves(self.state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)

    @cached_property
    def _parts(self) -> Machinery:
        return playing_parts(self.task, self.make_agent, self.num_chains, self.hyper, self.schedule)

    def __call__(self, observation: Any, *, seed: int = 0) -> np.ndarray:
        """Chooses actions.

        Args:
          observation: one, of the task's `observation_shape` (a stack of frames where it stacks them), or a batch with
            one more axis in front.
          seed: of what the agent draws when it acts, such as the active member of an ensemble.

        Returns:
          An integer, or one for each observation of the batch, as a NumPy array.
        """
        batch, axes = self._batch(observation)
        actions = np.asarray(self._actor(jax.random.key(seed), len(batch))(0, batch))
        return actions.reshape(axes)

    def values(self, observation: Any, *, seed: int = 0) -> np.ndarray:
        """The action values that it acts on.

        Args:
          observation: one, or a batch; as for actions.
          seed: of what the network draws, such as the fractions of quantiles.

        Returns:
          Shape (..., actions); with axes of chains and of members before the last where it has several.
        """
        batch, axes = self._batch(observation)
        spaces = Spaces(self.task.observation_shape, self.task.num_actions, self.task.decode)
        agent = self.make_agent(spaces, self.schedule(dict(self.hyper), 0.0))
        if agent.values is None:
            raise ValueError("this policy has no action values: its agent does not act on any")
        of_state = jax.vmap(agent.values, (0, None, 0))
        if self.num_chains > 1:
            of_state = jax.vmap(of_state, (None, 0, None), 1)
        found = np.asarray(of_state(jax.random.split(jax.random.key(seed), len(batch)), self.state, jnp.asarray(batch)))
        return found.reshape(*axes, *found.shape[1:])

    def _batch(self, observation: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        """Observations with one axis in front, and the axes in front that were given: none, or that one."""
        observation, shape = np.asarray(observation), self.task.observation_shape
        if observation.shape not in (shape, (*observation.shape[:1], *shape)):
            raise ValueError(f"observation must have shape {shape}, or a batch of them, got shape {observation.shape}")
        batch = np.asarray(observation.reshape(-1, *shape), self.task.frame_dtype)
        return batch, observation.shape[: observation.ndim - len(shape)]

    def _actor(self, key: Array, num_lanes: int) -> Callable[[int, np.ndarray], Array]:
        """`(time, observations) -> actions` for so many episodes side by side."""
        hyper = jax.tree.map(jnp.asarray, dict(self.hyper))
        key_context, key_act = jax.random.split(key)
        context = self._parts.begin(key_context, num_lanes, hyper)
        return lambda time, observations: self._parts.exploit(
            key_act, np.int32(time), self.state, context, observations, hyper
        )

    def evaluate(self, num_episodes: int = 20, seed: int = 0, *, max_steps: int = 27_000) -> np.ndarray:
        """Plays whole episodes side by side, in environments that no training has seen.

        Args:
          num_episodes: how many.
          seed: of the environments and of what the agent draws.
          max_steps: an episode is cut off after so many.

        Returns:
          Their returns, raw rewards summed, (num_episodes,).
        """
        check_count("num_episodes", num_episodes)
        check_count("seed", seed, minimum=0)
        check_count("max_steps", max_steps)
        evaluator = Evaluator(
            self.task,
            self._parts.exploit_each,
            self._parts.begin,
            jax.tree.map(jnp.asarray, dict(self.hyper)),
            num_episodes=num_episodes,
            max_steps=max_steps,
        )
        try:
            return evaluator.submit(jax.random.fold_in(jax.random.key(seed), _EVALUATION), self.state).result()[0]
        finally:
            evaluator.close()

    def record(
        self, path: str | Path, seed: int = 0, *, max_steps: int = 2000, frames_per_second: int | float = 30
    ) -> float:
        """Films one episode as a GIF.

        A Gymnasium task is filmed as it renders itself in the mode "rgb_array". Of other tasks, a film shows what the
        agent sees if that is an image: Atari games in grey, 84×84, enlarged.

        Args:
          path: a file that ends in .gif.
          seed: of the episode.
          max_steps: the film ends after so many steps at the latest.
          frames_per_second: of the film; one frame is one step.

        Returns:
          The return of what was filmed.

        Raises:
          ValueError: if the task shows no pictures.
        """
        path = Path(path)
        if path.suffix.lower() != ".gif":
            raise ValueError(f"path of a film must end in .gif, got {str(path)!r}")
        check_count("seed", seed, minimum=0)
        check_count("max_steps", max_steps)
        check_positive("frames_per_second", frames_per_second)
        from PIL import Image

        env, picture = self._filmed()
        pictures: list[Any] = []
        key_seed, key_act = jax.random.split(jax.random.fold_in(jax.random.key(seed), _EVALUATION))
        try:
            returns, _ = play(
                env,
                self.task,
                self._actor(key_act, 1),
                seed=int(jax.random.randint(key_seed, (), 0, 2**30)),
                max_steps=max_steps,
                on_step=lambda frames: pictures.append(Image.fromarray(picture(frames[0]))),
            )
        except gymnasium.error.Error as error:
            raise ValueError(f"env {self.task.name!r} cannot be filmed: {str(error).splitlines()[0]}") from error
        finally:
            env.close()
        film = {"save_all": True, "append_images": pictures[1:], "duration": 1000 / frames_per_second, "loop": 0}
        atomically(path, lambda partial: pictures[0].save(partial, "GIF", **film))
        return float(returns[0])

    def _filmed(self) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
        """An environment, and a function from what it has just shown to a picture."""
        task, name = self.task, self.task.name
        if self.origin.kind == "gym":
            task = make_task(self.origin._replace(settings={**self.origin.settings, "render_mode": "rgb_array"}))
        env = task.make(1, False)
        if getattr(env, "render_mode", None) == "rgb_array":

            def rendered(frame: np.ndarray) -> np.ndarray:
                pictures = env.render()
                if pictures is None or pictures[0] is None:
                    raise ValueError(f"env {name!r} cannot be filmed: it renders nothing")
                return np.asarray(pictures[0], np.uint8)

            return env, rendered
        is_grey = len(task.frame_shape) == 2
        is_colour = len(task.frame_shape) == 3 and task.frame_shape[-1] == 3
        if task.frame_dtype == np.uint8 and (is_grey or is_colour):
            scale = max(1, -(-240 // task.frame_shape[0]))
            return env, lambda frame: frame.repeat(scale, 0).repeat(scale, 1)
        env.close()
        raise ValueError(f"env {name!r} cannot be filmed: it has no render_mode 'rgb_array', nor shows it images")


def playing_parts(task: Task, make_agent, num_chains: int, hyper, schedule) -> Machinery:
    """The compiled parts; nothing is stored, so the replay is as small as may be."""
    fewest = {"num_envs": num_chains, "num_groups": 1, "num_draws": 1, "capacity": (task.stack + 8) * num_chains}
    protocol = HostProtocol(num_chains=num_chains, **fewest)
    return machinery(task, make_agent, protocol, hyper, schedule)
