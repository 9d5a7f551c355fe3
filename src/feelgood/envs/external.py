"""External environments: vector environments of Gymnasium and of ALE, as lanes of frames."""

import contextlib
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jax.typing import ArrayLike

from feelgood.checks import check_choice, check_count, check_fraction, check_kind, check_positive
from feelgood.envs.base import observation_bound
from feelgood.envs.images import image_decoder
from feelgood.envs.indices import is_index, one_hot_decoder
from feelgood.envs.priority import in_background
from feelgood.signals import SECONDS_TO_STOP, SIGNALS
from feelgood.typing import Array

__all__ = [
    "ExternalEnvironment",
    "atari",
    "gym_environment",
    "vector_environment",
]


def unchanged(array: Any) -> Any:
    """Returns its argument: frames are observations, rewards are as they come."""
    return array


class ExternalEnvironment(NamedTuple):
    """An external environment, as a training loop uses it.

    Attributes:
      name: its name in tables.
      make: `(num_envs, training) -> VectorEnv`; every environment resets itself in the step after its end. Its
        observation is a frame, or an array with as many numbers (ALE returns a stack of one).
      frame_shape: shape of the frame of one step.
      frame_dtype: NumPy dtype of a frame.
      num_actions: actions are the integers below it.
      stack: frames in an observation; 1 for no axis of frames.
      decode: `stored -> observation`, the input of a network; any leading axes.
      transform_reward: `reward -> reward`, applied to the rewards of training; evaluation uses raw rewards.
      reset_lanes: `(env, is_reset) -> frames`, begins new episodes in the lanes marked by bool (num_envs,) and returns
        the frames of all lanes; None if environments cannot be reset one by one.
      observation_bound: largest absolute value of each entry of an observation, infinite if there is none.
      steps_by_itself: whether its vector environments also have `send` and `recv`, the two halves of `step`, so that
        several of them can step at the same time.
      time_limit: steps after which it ends every episode; None if that is unknown.
      is_one_hot: whether a frame is the index of the 1 in a one-hot observation, which `decode` returns.
      space: the space of observations that are made into frames, flattened or one-hot ones; None if frames are the
        observations.
    """

    name: str
    make: Callable[[int, bool], VectorEnv]
    frame_shape: tuple[int, ...]
    frame_dtype: Any
    num_actions: int
    stack: int = 1
    decode: Callable[[Array], Array] = unchanged
    transform_reward: Callable[[Array], Array] = unchanged
    reset_lanes: Callable[[VectorEnv, np.ndarray], Any] | None = None
    steps_by_itself: bool = False
    observation_bound: Any = 1.0
    time_limit: int | None = None
    is_one_hot: bool = False
    space: gymnasium.Space | None = None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a stack, or of a frame if there is no stack."""
        return self.frame_shape if self.stack == 1 else (self.stack, *self.frame_shape)


def atari(
    game: str,
    *,
    sticky: float = 0.0,
    life_loss: bool = True,
    clip_rewards: bool = True,
    full_action_space: bool = False,
    pixel_scale: float = 1.0,
    num_threads: int = 0,
) -> ExternalEnvironment:
    """An Atari game through ALE's own vector environment; the defaults are the paper's protocol.

    Frame skip 4 with the maximum of the last two, 84×84 grey, four frames in an observation, up to 30 no-ops and fire
    on reset. Evaluation always plays full games with raw rewards.

    Args:
      game: name in ALE's spelling, such as "alien" or "ms_pacman".
      sticky: probability that an action is repeated; 0.25 in Dopamine's protocol.
      life_loss: whether an episode of training ends with a life. The game itself continues.
      clip_rewards: whether rewards of training are replaced by their sign.
      full_action_space: all 18 actions instead of the game's own.
      pixel_scale: factor of the pixels, 0 to 255; 1 in the released code, 1/255 in most others.
      num_threads: emulator threads; 0 for one a core, which on eight or more cores is bound to it with idle priority.
    """
    vector_env = _ale_vector_env(game)
    check_fraction("sticky", sticky)
    check_positive("pixel_scale", pixel_scale)
    num_threads = check_count("num_threads", num_threads, minimum=0)
    flags = {"life_loss": life_loss, "clip_rewards": clip_rewards, "full_action_space": full_action_space}
    for name, flag in flags.items():
        check_kind(name, flag, bool, "True or False")

    def make(num_envs: int, training: bool) -> VectorEnv:
        return in_background(
            lambda: vector_env(
                game,
                num_envs,
                num_threads=num_threads,
                stack_num=1,
                repeat_action_probability=sticky,
                full_action_space=full_action_space,
                # ALE's `episodic_life` would restart the game after each life; this only reports the loss of a life.
                life_loss_info=life_loss and training,
                reward_clipping=False,
            )
        )

    def decode(pixels: ArrayLike) -> Array:
        return jnp.asarray(pixels, jnp.float32) * jnp.float32(pixel_scale)

    def sign(reward: ArrayLike) -> Array:
        return jnp.sign(reward)

    return ExternalEnvironment(
        game,
        make,
        (84, 84),
        np.dtype(np.uint8),
        _num_actions(make(1, False)),
        stack=4,
        decode=decode,
        transform_reward=sign if clip_rewards else unchanged,
        reset_lanes=lambda env, is_reset: env.reset(options={"reset_mask": is_reset})[0],
        steps_by_itself=True,
        time_limit=27_000,  # ALE's 108,000 frames
    )


def _ale_vector_env(game: str) -> Any:
    """ALE's class of vector environments; raises a ValueError if it or the game's ROM is missing."""
    try:
        import ale_py.roms
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise ValueError("Atari games need the extra 'atari': pip install 'feelgood[atari]'") from error
    check_choice("game", game, ale_py.roms.get_all_rom_ids())
    try:
        rom = ale_py.roms.get_rom_path(game)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the ROM of game {game!r} cannot be read ({error}); reinstall ale-py") from error
    if rom is None:
        raise ValueError(f"the ROM of game {game!r} is missing; reinstall ale-py")
    return AtariVectorEnv


def _num_actions(env: VectorEnv) -> int:
    space: Any = env.single_action_space
    return int(space.n)


def gym_environment(name: str, *, vectorization: str = "sync", **settings: Any) -> ExternalEnvironment:
    """A Gymnasium environment with discrete actions, by its registered name.

    Args:
      name: registered name, such as "CartPole-v1".
      vectorization: "sync" steps the environments one after the other, "async" each in its own process.
      settings: keyword arguments of `gymnasium.make`.
    """
    check_choice("vectorization", vectorization, ("sync", "async"))

    def make(num_envs: int, training: bool) -> VectorEnv:
        del training
        try:
            if vectorization == "async":
                each = partial(_make_alone, name, settings)
                return AsyncVectorEnv([each] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
            return gymnasium.make_vec(
                name,
                num_envs=num_envs,
                vectorization_mode=vectorization,
                vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
                **settings,
            )
        except gymnasium.error.Error as error:
            # A name without a version is no name of Gymnasium's, and may be a game's.
            is_game = name.startswith("ALE/") or not re.search(r"-v\d+$", name)
            hint = " (Atari games have names as in atari:venture)" if is_game else ""
            raise ValueError(f"env {name!r} cannot be made: {str(error).splitlines()[0]}{hint}") from error
        except Exception as error:  # of the environment's own code
            if not settings or isinstance(error, ImportError | TypeError):
                raise
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ValueError(f"settings of env {name!r} do not fit: {why}") from error

    environment = vector_environment(make, name)
    with contextlib.closing(gymnasium.make(name, **settings)) as one:
        return environment._replace(time_limit=_limit_of_one(one))


def _make_alone(name: str, settings: dict[str, Any]) -> gymnasium.Env:
    """Makes an environment. In its own process it leaves signals to the training process, and ends later on SIGTERM."""
    if multiprocessing.parent_process() is not None:
        os.setpgrp()
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        end = threading.Timer(SECONDS_TO_STOP, os._exit, (1,))
        end.daemon = True
        signal.signal(signal.SIGTERM, lambda signum, frame: None if end.is_alive() else end.start())
    return gymnasium.make(name, **settings)


def vector_environment(make: Callable[[int, bool], VectorEnv], name: str = "custom") -> ExternalEnvironment:
    """An external environment from your own `make(num_envs, training) -> gymnasium.vector.VectorEnv`.

    Observations may be of any space of fixed size. Whole numbers from 0 on are stored unchanged, and agents see one-hot
    vectors; spaces other than boxes are flattened. Images are scaled, and agents see their channels first; see
    `feelgood.envs.images`.

    Raises:
      ValueError: if actions are not discrete, or the environments do not reset themselves in the step after their end.
    """

    def flat(num_envs: int, training: bool) -> VectorEnv:
        num_envs = check_count("num_envs", num_envs)
        env = make(num_envs, training)
        check_kind("result of make", env, VectorEnv, "a gymnasium.vector.VectorEnv")
        if env.num_envs != num_envs:
            raise ValueError(f"env {name!r} must be made with num_envs = {num_envs}, as asked for, got {env.num_envs}")
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(f"env {name!r} must be made with autoreset_mode=AutoresetMode.NEXT_STEP, got {mode}")
        if not isinstance(env.single_action_space, gymnasium.spaces.Discrete):
            kind = "must have discrete actions, one gymnasium.spaces.Discrete"
            raise ValueError(f"env {name!r} {kind}, got {env.single_action_space}")
        if env.single_action_space.start != 0:
            raise ValueError(f"actions of env {name!r} must start at 0, got {env.single_action_space}")
        if _is_flattened(env.single_observation_space):
            try:
                env = gymnasium.wrappers.vector.FlattenObservation(env)
            except (NotImplementedError, TypeError) as error:
                raise ValueError(f"observations of env {name!r} cannot be flattened: {error}") from error
        return env

    example = flat(1, False)
    try:
        space: Any = example.single_observation_space
        is_one_hot = is_index(space)
        if _is_flattened(space):
            raise ValueError(f"observations of env {name!r} must be of fixed size, got {space}")
        decode = one_hot_decoder((int(space.n),)) if is_one_hot else image_decoder(space)
        is_flat = isinstance(example, gymnasium.wrappers.vector.FlattenObservation)
        return ExternalEnvironment(
            name,
            flat,
            tuple(space.shape),
            _frame_dtype(space),
            _num_actions(example),
            decode=decode or unchanged,
            observation_bound=1.0 if decode else observation_bound(space.low, space.high),
            time_limit=_time_limit(example),
            is_one_hot=is_one_hot,
            space=example.env.single_observation_space if is_flat else None,  # type: ignore[attr-defined]
        )
    finally:
        example.close()


def _is_flattened(space: gymnasium.Space) -> bool:
    """Whether observations of a space become vectors: neither boxes nor whole numbers from 0 on."""
    return not (isinstance(space, gymnasium.spaces.Box) or is_index(space))


def _frame_dtype(space: Any) -> np.dtype:
    """A dtype that JAX has for the observations of a space: numbers of 64 bits lose half of them."""
    dtype = np.dtype(space.dtype)
    if dtype.kind not in "iu" or dtype.itemsize < 8:
        return np.dtype(np.float32) if dtype == np.float64 else dtype
    narrow = np.dtype(np.int32 if dtype.kind == "i" else np.uint32)
    if isinstance(space, gymnasium.spaces.Box):
        bounds = np.iinfo(narrow)
        if (space.low < bounds.min).any() or (space.high > bounds.max).any():
            return np.dtype(np.float32)
    return narrow


def _time_limit(env: VectorEnv) -> int | None:
    """The limit of one of its environments, or that in its specification."""
    with contextlib.suppress(Exception):  # a vector environment of another library may raise anything
        if isinstance(env.unwrapped, SyncVectorEnv):
            return _limit_of_one(env.unwrapped.envs[0])
        if env.spec is not None and env.spec.max_episode_steps:
            return int(env.spec.max_episode_steps)
    return None


def _limit_of_one(env: gymnasium.Env) -> int | None:
    """The limit of a `TimeLimit` wrapper; the one in the specification may be overridden."""
    return int(env.get_wrapper_attr("_max_episode_steps")) if env.has_wrapper_attr("_max_episode_steps") else None
