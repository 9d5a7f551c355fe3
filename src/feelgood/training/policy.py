"""Policies: trained agents that act, are evaluated and recorded; `policy_files` writes them to a folder."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal, complete
from feelgood.checks import check_choice, check_count, check_positive
from feelgood.envs.external import ExternalEnvironment, atari, gym_environment
from feelgood.envs.indices import one_hot_index
from feelgood.training.acting import Acting, acting, spaces_of
from feelgood.training.evaluation import Evaluator, play
from feelgood.training.films import check_film, write_film
from feelgood.typing import Array, Scalar

OWN = "own"
"""Name of an agent outside the zoo, and kind of an environment made by the user's own code."""
# Evaluation keys differ from training keys of the same seed.
_EVALUATION = 0x65766C


class Origin(NamedTuple):
    """How to make an environment again, in a form that can be stored.

    Attributes:
      kind: "gym", "atari", or "own" for an environment made by the user's own code.
      name: the environment's name.
      settings: other arguments of `gym_environment` or `atari`.
    """

    kind: str
    name: str
    settings: Mapping[str, Any] = {}


_NOWHERE = Origin(OWN, "custom")


def make_environment(origin: Origin) -> ExternalEnvironment:
    """Makes the environment of an origin; a ValueError if it cannot be made, or if its kind is "own"."""
    makers: dict[str, Callable[..., ExternalEnvironment]] = {"gym": gym_environment, "atari": atari}
    check_choice("kind of environment", origin.kind, makers)
    if origin.kind == "atari":
        _, *allowed = inspect.signature(atari).parameters
        for name in origin.settings:
            check_choice(f"env_settings of {origin.name}", name, allowed)
    try:
        return makers[origin.kind](origin.name, **origin.settings)
    except TypeError as error:
        raise ValueError(f"settings of env {origin.name!r} do not fit: {error}") from error
    except ImportError as error:  # a name such as "package:Name-v0" loads a package
        raise ValueError(f"env {origin.name!r} cannot be made: {error}") from error


def zoo_agent(name: str, options: Options) -> Callable[[Spaces, Any], Agent]:
    """`(spaces, hyper) -> Agent` of an agent of the zoo."""
    check_choice("agent", name, ZOO)
    whole = complete(name, options)
    return lambda spaces, hyper: ZOO[name].make(spaces, hyper, whole)


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """A trained agent, as it acts in evaluation.

    Attributes:
      environment: the external environment that it plays.
      make_agent: `(spaces, hyper) -> Agent`.
      hyper: the agent's hyper-parameters.
      state: the acting part of the agent's state; with several chains its arrays have a leading axis.
      agent: the agent's name in the zoo, or "own".
      origin: the origin of the environment.
      options: options of an agent of the zoo.
      num_chains: number of chains in its state.
      schedule: `(hyper, progress) -> hyper`.
      training: the seed and the settings of the run that trained it.
    """

    environment: ExternalEnvironment
    make_agent: Callable[[Spaces, Any], Agent]
    hyper: Mapping[str, Scalar]
    state: AgentState
    agent: str = OWN
    origin: Origin = _NOWHERE
    options: Options = field(default_factory=Options)
    num_chains: int = 1
    schedule: Callable[[Any, Scalar], Any] = anneal
    training: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        seed = f", seed {self.training['seed']}" if "seed" in self.training else ""
        return f"Policy({self.agent} in {self.environment.name}{seed})"

    @property
    def is_finite(self) -> bool:
        """Whether all trained parameters are finite; after divergence they are not. Frozen bounds may be infinite."""
        trained = self.state._replace(frozen=())
        leaves = [leaf for leaf in jax.tree.leaves(trained) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)

    @cached_property
    def _acting(self) -> Acting:
        return acting(self.environment, self.make_agent, self.schedule, self.num_chains)

    def __call__(self, observation: Any, *, seed: int = 0) -> np.ndarray:
        """Chooses actions.

        Args:
          observation: one observation, as the environment returns it, or a batch with a leading axis. Batches of
            spaces that are flattened, such as dictionaries, must be flattened already.
          seed: seed of random choices, such as the active member of an ensemble.

        Returns:
          An integer, or one for each observation of the batch, as a NumPy array.
        """
        batch, axes = self._batch(observation)
        actions = np.asarray(self._actor(jax.random.key(seed), len(batch))(0, batch))
        return actions.reshape(axes)

    def values(self, observation: Any, *, seed: int = 0) -> np.ndarray:
        """The action values on which it acts.

        Args:
          observation: one observation or a batch, as for actions.
          seed: seed of random draws in the network, such as quantile fractions.

        Returns:
          Shape (..., actions); with axes of chains and members before the last if there are several.
        """
        batch, axes = self._batch(observation)
        agent = self.make_agent(spaces_of(self.environment), self.schedule(dict(self.hyper), 0.0))
        if agent.values is None:
            raise ValueError("this policy has no action values: its agent does not use them")
        of_state = jax.vmap(agent.values, (0, None, 0))
        if self.num_chains > 1:
            of_state = jax.vmap(of_state, (None, 0, None), 1)
        found = np.asarray(of_state(jax.random.split(jax.random.key(seed), len(batch)), self.state, jnp.asarray(batch)))
        return found.reshape(*axes, *found.shape[1:])

    def _batch(self, observation: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        """Observations with a leading axis, and the leading axes that were given: none or one."""
        environment, shape = self.environment, self.environment.observation_shape
        space = environment.space
        if space is not None and not environment.is_one_hot and space.contains(observation):
            observation = gymnasium.spaces.flatten(space, observation)
        if isinstance(observation, Mapping | tuple):
            how = "gymnasium.spaces.flatten(space, observation) makes one"
            raise ValueError(f"observation must be an array, got {observation!r}; {how}")
        observation = np.asarray(observation)
        given = shape if space is None or not environment.is_one_hot else spaces_of(environment).observation_shape
        if observation.shape not in (given, (*observation.shape[:1], *given)):
            raise ValueError(f"observation must have shape {given}, or a batch of them, got shape {observation.shape}")
        if environment.is_one_hot:
            observation = self._indices(observation)
        batch = np.asarray(observation.reshape(-1, *shape), environment.frame_dtype)
        return batch, observation.shape[: observation.ndim - len(shape)]

    def _indices(self, observation: np.ndarray) -> np.ndarray:
        """The indices of one-hot observations, which are arrays in functional environments and indices elsewhere."""
        shape = spaces_of(self.environment).observation_shape
        if self.environment.space is not None:
            return one_hot_index(observation, shape)
        if not (np.issubdtype(observation.dtype, np.integer) and np.isin(observation, range(shape[0])).all()):
            allowed = f"a whole number from 0 to {shape[0] - 1}"
            raise ValueError(f"observation must be {allowed}, or a batch of them, got {observation.tolist()}")
        return observation

    def _actor(self, key: Array, num_lanes: int) -> Callable[[int, np.ndarray], Array]:
        """`(time, observations) -> actions` for `num_lanes` parallel episodes."""
        hyper = jax.tree.map(jnp.asarray, dict(self.hyper))
        key_context, key_act = jax.random.split(key)
        context = self._acting.begin(key_context, num_lanes, hyper)
        return lambda time, observations: self._acting.exploit(
            key_act, np.int32(time), self.state, context, observations, hyper
        )

    def evaluate(self, num_episodes: int = 20, seed: int = 0, *, max_steps: int | None = None) -> np.ndarray:
        """Plays whole episodes in parallel, in new environments.

        Args:
          num_episodes: number of episodes.
          seed: seed of the environments and of the agent's random choices.
          max_steps: episodes are cut off after this number of steps, with a warning; by default the limit of the
            evaluations in its training, or 27,000.

        Returns:
          Their returns, sums of raw rewards, (num_episodes,).
        """
        num_episodes, seed = check_count("num_episodes", num_episodes), check_count("seed", seed, minimum=0)
        max_steps = self.training.get("max_evaluation_steps", 27_000) if max_steps is None else max_steps
        max_steps = check_count("max_steps", max_steps)
        hyper, key = jax.tree.map(jnp.asarray, dict(self.hyper)), jax.random.fold_in(jax.random.key(seed), _EVALUATION)
        evaluator = Evaluator(self.environment, self._acting, hyper, num_episodes=num_episodes, max_steps=max_steps)
        with closing(evaluator):
            played = evaluator.submit(key, self.state).result()
        if played.num_cut:
            which = f"{played.num_cut} of {num_episodes} episodes"
            warnings.warn(f"{which} did not end and were cut off after {max_steps} steps (max_steps)", stacklevel=2)
        return played.returns

    def record(
        self,
        path: str | Path,
        seed: int = 0,
        *,
        max_steps: int = 2000,
        frames_per_second: int | float = 30,
        every: int = 1,
    ) -> float:
        """Records one episode as a GIF or MP4.

        A Gymnasium environment is rendered in the mode "rgb_array". For other environments the frames are recorded if
        they are images: Atari games in grey, 84×84, enlarged.

        Args:
          path: a file that ends in .gif, or in .mp4 if ffmpeg or the package imageio-ffmpeg is installed.
          seed: seed of the episode.
          max_steps: the recording ends after this number of steps at the latest.
          frames_per_second: speed of the recording if every step is shown; one frame is one step.
          every: shows each `every`-th step only, at the same speed; the file is about `every` times smaller.

        Returns:
          The return of the recorded steps.

        Raises:
          ValueError: if the environment has no images, or ffmpeg is needed and missing.
        """
        path = Path(path)
        check_film(path)
        check_positive("frames_per_second", frames_per_second)
        seed = check_count("seed", seed, minimum=0)
        max_steps, every = check_count("max_steps", max_steps), check_count("every", every)
        env, picture = self._recorded()
        pictures: list[np.ndarray] = []
        key_seed, key_act = jax.random.split(jax.random.fold_in(jax.random.key(seed), _EVALUATION))
        try:
            returns, _ = play(
                env,
                self.environment,
                self._actor(key_act, 1),
                seed=int(jax.random.randint(key_seed, (), 0, 2**30)),
                max_steps=max_steps,
                on_step=lambda frames: pictures.append(np.array(picture(frames[0]))),
            )
        except (gymnasium.error.Error, NotImplementedError) as error:
            why = str(error).splitlines()[0] if str(error) else "its render is not implemented"
            raise ValueError(f"env {self.environment.name!r} cannot be recorded: {why}") from error
        finally:
            env.close()
        write_film(path, pictures[::every], frames_per_second / every)
        return float(returns[0])

    def _recorded(self) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
        """An environment, and a function from its newest frame to a picture."""
        name, shape = self.environment.name, self.environment.frame_shape
        env = self.environment.make(1, False)  # raises an error if its module must not be imported
        if self.origin.kind == "gym" and "rgb_array" in (env.metadata.get("render_modes") or ()):
            env.close()
            settings = {**self.origin.settings, "render_mode": "rgb_array"}
            env = make_environment(self.origin._replace(settings=settings)).make(1, False)
        if getattr(env, "render_mode", None) == "rgb_array":

            def rendered(frame: np.ndarray) -> np.ndarray:
                pictures = env.render()
                if pictures is None or pictures[0] is None:
                    raise ValueError(f"env {name!r} cannot be recorded: it renders nothing")
                return np.asarray(pictures[0], np.uint8)

            return env, rendered
        is_image = len(shape) == 2 or (len(shape) == 3 and shape[-1] == 3)  # in grey or colour
        if self.environment.frame_dtype == np.uint8 and is_image:
            scale = max(1, -(-240 // shape[0]))
            return env, lambda frame: frame.repeat(scale, 0).repeat(scale, 1)
        env.close()
        raise ValueError(
            f"env {name!r} cannot be recorded: it has no render_mode 'rgb_array' and its frames are not images; list "
            "'rgb_array' in metadata['render_modes'] of its class, and return the picture from render()"
        )
