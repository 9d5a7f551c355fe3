"""Policies: what a run leaves to be used. One acts, is evaluated and filmed, and is kept in a folder without code.

A folder holds `policy.npz`, the arrays by their names in the agent's state, and `policy.json`, all else: the agent by
its name in the zoo, its hyper-parameters and options, the task, and the versions that it was made with.
"""

import dataclasses
import hashlib
import inspect
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal
from feelgood.checks import check_choice, check_count, check_kind, check_positive
from feelgood.envs import Environment
from feelgood.envs.external import Task, atari, functional_task, gym_task, vector_task
from feelgood.results import store
from feelgood.training.evaluation import Evaluator, play, policy_of
from feelgood.training.machinery import HostProtocol, Machinery, machinery
from feelgood.typing import Array, Scalar

__all__ = ["Origin", "Policy", "find_policy", "load_policy", "make_task", "save_policy", "zoo_agent"]

_FORMAT = 1
_OWN = "own"
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


_NOWHERE = Origin(_OWN, "custom")


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
    agent: str = _OWN
    origin: Origin = _NOWHERE
    options: Options = field(default_factory=Options)
    num_chains: int = 1
    schedule: Callable[[Any, Scalar], Any] = anneal

    @cached_property
    def _parts(self) -> Machinery:
        return _machinery(self.task, self.make_agent, self.num_chains, self.hyper, self.schedule)

    def __call__(self, observation: Any, *, seed: int = 0) -> np.ndarray:
        """Chooses actions.

        Args:
          observation: one, of the task's `observation_shape` (a stack of frames where it stacks them), or a batch with
            one more axis in front.
          seed: of what the agent draws when it acts, such as the active member of an ensemble.

        Returns:
          An integer, or one for each observation of the batch, as a NumPy array.
        """
        observation, shape = np.asarray(observation), self.task.observation_shape
        if observation.shape not in (shape, (*observation.shape[:1], *shape)):
            raise ValueError(f"observation must have shape {shape}, or a batch of them, got shape {observation.shape}")
        batch = np.asarray(observation.reshape(-1, *shape), self.task.frame_dtype)
        actions = np.asarray(self._actor(jax.random.key(seed), len(batch))(0, batch))
        return actions.reshape(observation.shape[: observation.ndim - len(shape)])

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
        film = io.BytesIO()
        duration = 1000 / frames_per_second
        pictures[0].save(film, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
        _write(path, film.getvalue())
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


def _machinery(task: Task, make_agent, num_chains: int, hyper, schedule) -> Machinery:
    """The compiled parts; nothing is stored, so the replay is as small as may be."""
    fewest = {"num_envs": num_chains, "num_groups": 1, "num_draws": 1, "capacity": (task.stack + 8) * num_chains}
    protocol = HostProtocol(num_chains=num_chains, **fewest)
    return machinery(task, make_agent, protocol, hyper, schedule)


# On disk.


def _named(state: AgentState) -> dict[str, Any]:
    """The arrays of a state by their paths in it, such as "sampler/params/layers/0/weight"."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    """Of what policies depend on; an emulator of another version may play another game."""
    found = store.describe_machine()["versions"]
    for name in ("gymnasium", "ale-py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def save_policy(folder: str | Path, policy: Policy) -> list[Path]:
    """Keeps a policy in a folder, as `policy.npz` and `policy.json`; both are returned.

    An agent or a task of your own is not written down; `load_policy` must be given it again.
    """
    folder = Path(folder)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in _named(policy.state).items()}
    np.savez(buffer, **arrays)
    data = buffer.getvalue()
    about = {
        "format": _FORMAT,
        "agent": policy.agent,
        "hyper": {name: float(value) for name, value in policy.hyper.items()},
        "options": dataclasses.asdict(policy.options),
        "task": {"kind": policy.origin.kind, "name": policy.origin.name, "settings": dict(policy.origin.settings)},
        "num_chains": policy.num_chains,
        "arrays": hashlib.sha256(data).hexdigest(),
        "versions": _versions(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        text = json.dumps(about, indent=2) + "\n"
    except TypeError as error:
        raise ValueError(f"settings of env {policy.origin.name!r} cannot be written down: {error}") from error
    paths = [folder / "policy.npz", folder / "policy.json"]
    _write(paths[0], data)
    _write(paths[1], text.encode())
    return paths


def find_policy(run: str | Path) -> Path:
    """The folder of the policy of a run: `run` itself, or what lies in it.

    Raises:
      ValueError: if there is none, or more than one.
    """
    run = Path(run)
    found = [path.parent for path in (run / "policy.json", run / "policy" / "policy.json") if path.exists()]
    found = found or sorted(path.parent for path in (run / "policy").glob("*/policy.json"))
    if not found:
        why = ": no policy.json lies there" if run.is_dir() else ": there is no such folder"
        if (run / "manifest.json").exists() and not store.read_study(run)["finished"]:
            why = f" yet: its run is unfinished (feelgood resume {run} goes on with it)"
        raise ValueError(f"folder {run} holds no policy{why}")
    if len(found) > 1:
        raise ValueError(f"folder {run} holds several policies; choose one of {', '.join(map(str, found))}")
    return found[0]


_FIELDS = {
    "format": int,
    "agent": str,
    "hyper": dict,
    "options": dict,
    "task": dict,
    "num_chains": int,
    "arrays": str,
}


def load_policy(
    folder: str | Path,
    *,
    make_agent: Callable[[Spaces, Any], Agent] | None = None,
    task: Task | Environment | Callable[[int, bool], Any] | None = None,
) -> Policy:
    """Reads a policy that `save_policy` kept. Loading runs no code from the folder.

    Args:
      folder: of the policy, or of the run that it belongs to.
      make_agent: for an agent of your own; that of the zoo if not given.
      task: for an environment of your own, as `feelgood.train` takes it (a `Task`, a functional environment, a function
        `(num_envs, training) -> VectorEnv`), or to play another one with the same spaces.

    Raises:
      ValueError: if there is no policy, or its files are damaged, or do not fit the agent or the task.
    """
    folder = find_policy(folder)
    about = store.read_manifest(folder / "policy.json")
    for name, kind in _FIELDS.items():
        if not isinstance(about.get(name), kind):
            raise ValueError(
                f"policy {folder} cannot be read: policy.json must hold a {kind.__name__} as {name!r}, "
                f"got {about.get(name)!r}"
            )
    if about["format"] != _FORMAT:
        raise ValueError(f"policy {folder} has format {about['format']}, this version of feelgood reads {_FORMAT}")
    try:
        options = Options(**{**about["options"], "hidden": tuple(about["options"]["hidden"])})
        origin = Origin(*(about["task"][name] for name in Origin._fields))
        hyper = {name: float(value) for name, value in about["hyper"].items()}
        check_count("num_chains", about["num_chains"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"policy {folder} cannot be read: policy.json holds what does not fit ({error})") from error
    if make_agent is None:
        if about["agent"] == _OWN:
            raise ValueError(f"policy {folder} is of an agent of your own; give load_policy its make_agent")
        make_agent = zoo_agent(about["agent"], options)
        missing = sorted(ZOO[about["agent"]].hyper.keys() - hyper.keys())
        if missing:
            raise ValueError(f"policy {folder} does not fit agent {about['agent']!r}: it lacks {', '.join(missing)}")
    if task is None:
        if origin.kind == _OWN:
            raise ValueError(f"policy {folder} is of a task of your own; give load_policy its task")
        task = make_task(origin)
    elif isinstance(task, Environment):
        task = functional_task(task, origin.name)
    elif callable(task):
        task = vector_task(task, origin.name)
    check_kind("task", task, Task, "a Task, an Environment or a function")
    parts = _machinery(task, make_agent, about["num_chains"], hyper, anneal)
    shapes = jax.eval_shape(parts.init, jax.random.key(0), jax.tree.map(jnp.float32, hyper))[0]
    like = jax.eval_shape(policy_of, shapes)
    state = _read(folder, about["arrays"], like)
    return Policy(task, make_agent, hyper, state, about["agent"], origin, options, about["num_chains"])


def _read(folder: Path, digest: str, like: AgentState) -> AgentState:
    """The arrays of a policy, in the structure of `like`."""
    try:
        data = (folder / "policy.npz").read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("policy.npz is not the file that policy.json speaks of")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"policy {folder} cannot be read: {error}") from error
    expected = _named(like)
    if arrays.keys() != expected.keys():
        differ = ", ".join(sorted(arrays.keys() ^ expected.keys())[:3])
        raise ValueError(f"policy {folder} does not fit its agent: arrays differ, such as {differ}")
    for name, leaf in expected.items():
        if (arrays[name].shape, arrays[name].dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(
                f"policy {folder} does not fit its agent or task: {name} is {arrays[name].dtype}{arrays[name].shape}, "
                f"expected {leaf.dtype}{leaf.shape}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in expected])
