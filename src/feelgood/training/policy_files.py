"""Policies on disk: a folder without code.

`policy.npz` holds the arrays by their names in the agent's state. `policy.json` holds the rest: the agent's name in the
zoo, its hyper-parameters and options, the environment, and the versions of the software.
"""

import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal
from feelgood.checks import check_choice, check_count
from feelgood.envs.conversion import as_external
from feelgood.envs.external import ExternalEnvironment, unchanged
from feelgood.envs.indices import one_hot_decoder
from feelgood.files import atomically
from feelgood.runs import store
from feelgood.runs.machine import describe_versions
from feelgood.training.acting import acting, policy_of, spaces_of
from feelgood.training.policy import OWN, Origin, Policy, make_environment, zoo_agent

_FORMAT = 1
_HEADER = 65_536  # bytes, more than the header of an array or of an archive's entry


def _named(state: AgentState) -> dict[str, Any]:
    """The arrays of a state by their paths in it, such as "sampler/params/layers/0/weight"."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def save_policy(folder: str | Path, policy: Policy) -> list[Path]:
    """Writes a policy to a folder, as `policy.npz` and `policy.json`; returns both paths.

    Your own agents and environments are not stored; pass them to `load_policy` again.
    """
    folder = Path(folder)
    buffer = io.BytesIO()
    np.savez(buffer, **jax.tree.map(np.asarray, _named(policy.state)))
    data = buffer.getvalue()
    about = {
        "format": _FORMAT,
        "agent": policy.agent,
        "hyper": {name: float(value) for name, value in policy.hyper.items()},
        "options": dataclasses.asdict(policy.options),
        "environment": {**policy.origin._asdict(), "settings": dict(policy.origin.settings)},
        "frames": _frames(policy.environment),
        "num_chains": policy.num_chains,
        "training": dict(policy.training),
        "arrays": hashlib.sha256(data).hexdigest(),
        "versions": describe_versions(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        text = json.dumps(about, indent=2) + "\n"
    except TypeError as error:
        raise ValueError(f"settings of env {policy.origin.name!r} cannot be stored: {error}") from error
    arrays, facts = folder / "policy.npz", folder / "policy.json"
    atomically(arrays, lambda partial: partial.write_bytes(data))
    store.write_text(facts, text)
    return [arrays, facts]


def _frames(environment: ExternalEnvironment) -> dict[str, Any] | None:
    """The facts that acting without the environment needs; None if frames have to be stacked or are images."""
    is_decoded = environment.decode is not unchanged
    if environment.stack > 1 or (is_decoded and not environment.is_one_hot):
        return None
    bound = np.broadcast_to(np.asarray(environment.observation_bound, float), environment.frame_shape).ravel()
    return {
        "shape": list(environment.frame_shape),
        "dtype": str(np.dtype(environment.frame_dtype)),
        "num_actions": environment.num_actions,
        "bound": [float(each) if np.isfinite(each) else None for each in bound],  # JSON has no infinity
        "one_hot_shape": list(spaces_of(environment).observation_shape) if environment.is_one_hot else None,
        "has_arrays": environment.is_one_hot and environment.space is not None,
    }


def find_policies(run: str | Path, kind: str = "policy") -> list[Path]:
    """The folders of the policies of a run: `run` itself, or folders in `run/policy`.

    `kind` is "policy" for the final policies, "best_policy" for the best ones. It is a ValueError if there is none.
    """
    run = Path(run)
    for folder in (run, run / kind):
        if (folder / "policy.json").exists():
            return [folder]
    found = sorted((run / kind).rglob("policy.json")) or sorted(run.glob("seed-*/policy.json"))
    if not found:
        raise ValueError(f"folder {run} holds no policy{store.why_empty(run, 'run', 'policy.json')}")
    return [path.parent for path in found]


def find_policy(run: str | Path) -> Path:
    """The folder of the only policy of a run; see `find_policies`. It is a ValueError if there are several."""
    found = find_policies(run)
    if len(found) > 1:
        raise ValueError(f"folder {run} holds several policies; choose one of {', '.join(map(str, found))}")
    return found[0]


_FIELDS = dict(format=int, agent=str, hyper=dict, options=dict, environment=dict, num_chains=int, arrays=str)


def load_policy(
    folder: str | Path,
    *,
    make_agent: Callable[[Spaces, Any], Agent] | None = None,
    environment: Any = None,
    allow_import: bool = False,
) -> Policy:
    """Reads a policy written by `save_policy`. Loading runs no code from the folder.

    Args:
      folder: the folder of the policy, or of its run.
      make_agent: your own agent; by default the agent of the zoo.
      environment: your own environment in any form that `feelgood.envs.conversion.as_external` takes, or another
        environment with the same spaces. By default it is made by its name; if that fails, the policy acts on
        observations, and `evaluate` and `record` raise the error.
      allow_import: whether an environment with a name such as "module:Name-v0" may import its module. Set it only for
        policies that you trust.

    Raises:
      ValueError: if there is no policy, or its files are damaged, or do not match the agent or the environment.
    """
    folder = find_policy(folder)
    about = _as_now(store.read_manifest(folder / "policy.json"))
    for name, kind in _FIELDS.items():
        if not isinstance(about.get(name), kind):
            wrong = f"policy.json must hold a {kind.__name__} as {name!r}, got {about.get(name)!r}"
            raise ValueError(f"policy {folder} cannot be read: {wrong}")
    if about["format"] != _FORMAT:
        raise ValueError(f"policy {folder} has format {about['format']}, this version of feelgood reads {_FORMAT}")
    try:
        hidden = about["options"]["hidden"]
        options = Options(**{**about["options"], "hidden": None if hidden is None else tuple(hidden)})
        origin = Origin(*(about["environment"][name] for name in Origin._fields))
        hyper = {name: float(value) for name, value in about["hyper"].items()}
        check_count("num_chains", about["num_chains"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"policy {folder} cannot be read: a value in policy.json is not valid ({error})") from error
    if make_agent is None:
        if about["agent"] == OWN:
            raise ValueError(f"policy {folder} needs your own agent; pass make_agent to load_policy")
        make_agent = zoo_agent(about["agent"], options)
        own = ZOO[about["agent"]].hyper
        hyper = {name: own[name] for name in _LATER & own.keys()} | hyper
        # Policies of runs with a constant hyper-parameter have no end of its schedule.
        missing = sorted(each for each in own.keys() - hyper.keys() if not each.endswith("_end"))
        if missing:
            raise ValueError(f"policy {folder} does not fit agent {about['agent']!r}: it lacks {', '.join(missing)}")
    environment = _environment(folder, origin, about, allow_import) if environment is None else as_external(environment)
    init = acting(environment, make_agent, anneal, about["num_chains"]).init
    shapes = jax.eval_shape(init, jax.random.key(0), jax.tree.map(jnp.float32, hyper))
    state = _read(folder, about["arrays"], jax.eval_shape(policy_of, shapes))
    training = about["training"] if isinstance(about.get("training"), dict) else {}
    name, chains = about["agent"], about["num_chains"]
    return Policy(environment, make_agent, hyper, state, name, origin, options, chains, training=training)


def _environment(folder: Path, origin: Origin, about: Mapping[str, Any], allow_import: bool) -> ExternalEnvironment:
    """The environment of a policy. If it cannot be made, a stand-in: the policy acts, and cannot be evaluated."""
    check_choice("kind of environment", origin.kind, ("gym", "atari", OWN))
    try:
        if origin.kind == OWN:
            raise ValueError(f"policy {folder} needs your own environment; pass environment to load_policy")
        if origin.kind == "gym" and ":" in origin.name and not allow_import:
            how = "pass environment, or allow_import=True (--allow-import) if you trust the policy"
            raise ValueError(f"policy {folder} plays env {origin.name!r}, whose module would be imported; {how}")
        return make_environment(origin)
    except ValueError as error:
        why, frames = str(error), about.get("frames")
        if not isinstance(frames, dict):
            raise
    try:
        shape, dtype = tuple(frames["shape"]), np.dtype(frames["dtype"])
        one_hot = frames.get("one_hot_shape")
        for number in (*shape, frames["num_actions"], *(one_hot or ())):
            check_count("a number of frames", number)
        bound = np.array([np.inf if each is None else each for each in frames["bound"]], float).reshape(shape)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"policy {folder} cannot be read: a value in policy.json is not valid ({error})") from error

    def refuse(num_envs: int, training: bool) -> Any:
        raise ValueError(why)

    environment = ExternalEnvironment(origin.name, refuse, shape, dtype, frames["num_actions"], observation_bound=bound)
    if one_hot is None:
        return environment
    space = gymnasium.spaces.Box(0, 1, tuple(one_hot)) if frames.get("has_arrays") else None
    return environment._replace(decode=one_hot_decoder(one_hot), is_one_hot=True, space=space)


# Hyper-parameters that acting does not use, and that policies saved before they existed do not have.
_LATER = {"reward_floor"}


def _as_now(about: dict[str, Any]) -> dict[str, Any]:
    """A policy.json with the current names; earlier versions wrote "task" and the hyper-parameter "average"."""
    about = {{"task": "environment"}.get(name, name): value for name, value in about.items()}
    if isinstance(about.get("hyper"), dict):
        about["hyper"] = {{"average": "average_decay"}.get(name, name): value for name, value in about["hyper"].items()}
    return about


def _read(folder: Path, digest: str, like: AgentState) -> AgentState:
    """The arrays of a policy, in the structure of `like`."""
    expected = _named(like)
    most = {f"{name}.npy": int(np.prod(leaf.shape)) * leaf.dtype.itemsize + _HEADER for name, leaf in expected.items()}
    try:
        if (folder / "policy.npz").stat().st_size > sum(most.values()) + _HEADER * (len(most) + 1):
            raise ValueError("policy.npz is larger than the arrays of its agent")
        data = (folder / "policy.npz").read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("policy.npz does not match policy.json")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for each in archive.infolist():
                if each.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{each.filename} in policy.npz is compressed")
                if each.file_size > most.get(each.filename, _HEADER):
                    raise ValueError(f"{each.filename} in policy.npz is larger than the array of its agent")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive may raise anything
        raise ValueError(f"policy {folder} cannot be read: {error}") from error
    if arrays.keys() != expected.keys():
        differ = ", ".join(sorted(arrays.keys() ^ expected.keys())[:3])
        raise ValueError(f"policy {folder} does not fit its agent: arrays differ, such as {differ}")
    for name, leaf in expected.items():
        found, wanted = (f"{x.dtype}{x.shape}" for x in (arrays[name], leaf))
        if found != wanted:
            misfit = f"{name} is {found}, expected {wanted}"
            raise ValueError(f"policy {folder} does not fit its agent or environment: {misfit}")
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in expected])
