"""The Atari study, after the paper's Figure 2 and table of scores: eight hard games, nine agents, 50 million frames.

A run is a game, an agent, a seed and a point of hyper-parameters. Each run has its own file; during the run, a folder
next to that file holds its replay and its last checkpoint.
"""

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from feelgood import checks
from feelgood.checks import check_choice, check_count, check_names
from feelgood.pairs import read_lists, read_numbers, read_values
from feelgood.protocols import ATARI, DEFAULT_PRESET, changed
from feelgood.studies.atari.paper import AGENTS, GAMES
from feelgood.studies.atari.runs import FRAMES_PER_STEP, Run, plan, run_task, settings
from feelgood.studies.engine import run_plans
from feelgood.studies.options import PresetInt, SeedOptions, check_agents, fill_in, grouped, read_options
from feelgood.studies.output import figure_files, write_files

SMOKE_FRAMES = 1_000_000
"""Shorter runs are reported as smoke tests."""

_PAPER: dict[str, Any] = {"games": GAMES, "agents": AGENTS, "num_frames": 50_000_000, "num_seeds": 5}
_RECOMMENDED = {**_PAPER, **ATARI[DEFAULT_PRESET]}

PRESETS: dict[str, dict[str, Any]] = {
    **{name: {**_PAPER, **protocol} for name, protocol in ATARI.items()},
    # The paper's sweep.
    "feel_good_weights": changed(
        _RECOMMENDED, games=("alien",), agents=("fg_ulmcdqn",), vary=("feel_good_weight=1,1e-2,1e-3,1e-4,1e-5",)
    ),
    # The paper reports that very high and very low values fail, but names only 1 and 10.
    "frictions": changed(_RECOMMENDED, games=("alien",), agents=("ulmcdqn",), vary=("friction=100,10,1,0.1,0.01",)),
    "quick": changed(
        {**_PAPER, **ATARI["paper"]},
        games=("freeway",),
        agents=("fg_ulmcdqn", "dqn"),
        num_frames=20_000,
        num_seeds=1,
        config={
            "num_envs": 20,
            "learning_starts": 1000,
            "capacity": 5000,
            "target_update_period": 50,
            "evaluation_period": 2500,
            "num_evaluation_episodes": 1,
            "max_evaluation_steps": 500,
            "num_stagger_turns": 100,
        },
    ),
}

if TYPE_CHECKING:
    Preset: TypeAlias = str
else:
    Preset = Literal[tuple(PRESETS)]
"""The name of a preset."""


@dataclass(frozen=True)
class AtariStudy(SeedOptions):
    """Hard exploration on Atari: learning curves and scores, compared with the paper's. Needs the extra atari."""

    preset: Preset = "quick"
    """quick: one game for 20,000 frames, minutes on two cores; a smoke test. paper: the paper's protocol in 300
    parallel environments; it and the following need a GPU. prioritized: the recommended protocol, with
    prioritised replay, bounded steps and pixels divided by 255. dopamine: the same with sticky actions, and episodes
    that end with the game instead of a life. feel_good_weights, frictions: the paper's Figure 3 on Alien, for several
    feel-good weights of FG-ULMCDQN or several frictions of ULMCDQN."""
    games: tuple[str, ...] = ()
    """Games, in ALE's spelling (default: from the preset)."""
    agents: tuple[str, ...] = ()
    """Agents (default: from the preset)."""
    num_frames: PresetInt = None
    """Emulator frames of a run, four per step (default: from the preset)."""
    num_seeds: PresetInt = None
    """Number of seeds (default: from the preset)."""
    hyper: tuple[str, ...] = grouped("agent and training", ())
    """Hyper-parameters of all agents, as in feel_good_weight=0.01 friction=10; others keep their Atari defaults."""
    vary: tuple[str, ...] = grouped("agent and training", ())
    """Hyper-parameters to vary one at a time, as in feel_good_weight=1,1e-2,1e-3 (default: from the preset)."""
    reference: tuple[Path, ...] = ()
    """CSV files of published curves to compare with, with columns agent, game, seed, frame, return."""
    output: Path = Path("runs/atari")
    """Folder for results; an unfinished run of the same study is continued."""
    config: tuple[str, ...] = grouped("agent and training", ())
    """Training settings that differ from the preset's, as in num_envs=100 batch_size=64 n_step=1; the names are
    those of `ExternalConfig`."""
    options: tuple[str, ...] = grouped("agent and training", ())
    """Agent options that differ from the preset's, as in form=corrected init=he prioritized=true; the names are those
    of `feelgood.agents.Options`."""
    env_settings: tuple[str, ...] = grouped("agent and training", ())
    """Emulator settings that differ from the preset's, as in sticky=0.25 life_loss=false pixel_scale=0.0625; the names
    are those of `feelgood.envs.external.atari`."""
    checkpoints: bool = grouped("engine", True)
    """Whether a run writes checkpoints, including its replay, so that it can be resumed."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, PRESETS)
        self._resolve(PRESETS[self.preset])
        check_names("games", self.games, _known_games())
        check_agents(self.agents)
        check_count("num_frames", self.num_frames)
        check_count("num_seeds", self.num_seeds)
        fixed = read_numbers("hyper", self.hyper)
        for name in read_lists("vary", self.vary):
            if name in fixed:
                raise ValueError(f"vary and hyper must name different hyper-parameters, got {name!r} in both")
        from feelgood.agents import Options

        Options(**self.mapping("options"))  # checks the values
        env_settings, config = self.mapping("env_settings"), self.mapping("config")
        checks.check_positive("pixel_scale", env_settings["pixel_scale"])
        checks.check_fraction("sticky", env_settings["sticky"])
        check_count("evaluation_period", config["evaluation_period"])
        frames = FRAMES_PER_STEP * config["evaluation_period"]
        if self.num_frames % frames:
            raise ValueError(
                f"num_frames must be a multiple of {frames}, the frames between two evaluations, got {self.num_frames}"
            )
        starts, most = config["learning_starts"], self.num_frames // FRAMES_PER_STEP
        if starts >= most:
            raise ValueError(f"learning_starts must be below {most}, all steps of a run, got {starts}")

    def _resolve(self, preset: Mapping[str, Any]) -> None:
        """Fills in the preset's values, so that a manifest holds every setting."""
        fill_in(self, {name: value for name, value in preset.items() if name not in MAPPINGS})
        for name in MAPPINGS:
            given, defaults = self.mapping(name), _defaults(name)
            for key, value in given.items():
                check_choice(name, key, defaults)
                given[key] = _like(key, value, defaults[key])
            whole = {**preset[name], **given}
            if name == "config" and "num_groups" not in given:
                from feelgood.training.config import most_groups

                counts = {key: check_count(key, whole[key]) for key in ("num_envs", "num_chains")}
                whole["num_groups"] = most_groups(**counts, at_most=whole["num_groups"])
            object.__setattr__(self, name, tuple(f"{key}={_text(value)}" for key, value in whole.items()))

    def mapping(self, name: str) -> dict[str, Any]:
        """The values of `config`, `options` or `env_settings` by name."""
        words = getattr(self, name)
        return read_options(words) if name == "options" else read_values(name, words)

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of `feelgood.training.config.ExternalConfig`."""
        return {"num_steps": self.num_frames // FRAMES_PER_STEP, **self.mapping("config")}


MAPPINGS = ("config", "options", "env_settings")
"""Options that are mappings, given as name=value."""


def _defaults(name: str) -> dict[str, Any]:
    """The settings that `config`, `options` or `env_settings` may have, with their defaults."""
    from feelgood.agents import Options
    from feelgood.envs.external import atari
    from feelgood.training.config import ExternalConfig

    if name == "env_settings":
        return {key: each.default for key, each in inspect.signature(atari).parameters.items() if key != "game"}
    defaults = vars(ExternalConfig() if name == "config" else Options())
    return {key: value for key, value in defaults.items() if key != "num_steps"}  # which num_frames sets


def _text(value: Any) -> str:
    """A setting as `read_values` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _like(name: str, value: Any, default: Any) -> Any:
    """A setting with the type of its default; `Options` checks those whose default is a tuple or None."""
    if default is None or isinstance(default, tuple):
        return value
    if isinstance(default, bool):
        checks.check_kind(name, value, bool, "true or false")
    elif isinstance(default, int):
        check_count(name, value, minimum=0)
    elif isinstance(default, float):
        checks.check_finite(name, value)
    return type(default)(value)


def _known_games() -> Sequence[str]:
    """All games of the emulator, or the paper's if it is not installed; the run then names the missing package."""
    try:
        from ale_py.roms import get_all_rom_ids
    except ImportError:
        return GAMES
    return get_all_rom_ids()


FILES = {
    "curves.parquet": "a row per run and evaluation, with the hyper-parameters of the run",
    "summary.csv": "a row per game and agent: scores with 95% confidence intervals over seeds, and the paper's",
    "overall.csv": "a row per agent: human-normalised scores over all games, with 95% bootstrap intervals",
    "summary.md": "both as Markdown tables",
    "sensitivity.csv": "a row per game, agent, parameter and value: scores with 95% confidence intervals over seeds",
    "sensitivity.md": "the same as a Markdown table",
    **figure_files("curves", "learning curves, a panel for each game"),
    **figure_files("sensitivity", "learning curves and scores for each value"),
}


def runs_of(study: AtariStudy) -> list[Run]:
    """All runs of a study, ordered by seed first."""
    fixed, lists = read_numbers("hyper", study.hyper), read_lists("vary", study.vary)
    varied = [(name, value) for name, values in lists.items() for value in values]
    points: list[tuple[str, float] | None] = [*varied] or [None]
    every = itertools.product(study.seed_list, study.games, study.agents, points)
    mappings = study.training, study.mapping("options"), study.mapping("env_settings")
    return [
        Run(game, agent, seed, {**fixed, **dict([point] if point else [])}, point, *mappings)
        for seed, game, agent, point in every
    ]


def run(study: AtariStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.atari import tables as results

    runs = runs_of(study)
    _check(study, runs)
    published = results.read_reference(study.reference) if study.reference else None
    seeds = {"all": study.seed_list}
    with store.recorded(study.output, "atari", study, seeds=seeds, files=FILES) as facts:
        plans = [plan(each, checkpoints=study.checkpoints) for each in runs]
        done = run_plans(study, plans, study.output, facts)
        order = sorted(range(len(runs)), key=lambda i: study.games.index(runs[i].game))  # stable
        curves = pd.concat([done[i] for i in order], ignore_index=True)
        is_smoke = study.num_frames < SMOKE_FRAMES
        smoke = f"A smoke test of {study.num_frames:,} frames, not a result.\n\n" if is_smoke else ""
        files: dict[str, Any] = {"curves.parquet": curves}
        if study.vary:
            table = results.sensitivity(curves)
            text = smoke + results.sensitivity_as_markdown(table)
            files |= {"sensitivity.csv": table, "sensitivity.md": text}
            files["sensitivity"] = results.sensitivity_curves(curves)
        else:
            summary, overall = results.summarise(curves, published), results.overall(curves)
            text = smoke + results.as_markdown(summary, overall)
            files |= {"summary.csv": summary, "overall.csv": overall, "summary.md": text}
            files["curves"] = results.curves_and_published(curves, published)
        report(text)
        paths = write_files(study.output, files)
        for path in study.output.glob("cells/*.so-far.csv"):
            path.unlink()
    return paths


def _check(study: AtariStudy, runs: Sequence[Run]) -> None:
    """Raises errors before anything is written: missing ROMs, invalid hyper-parameters or settings.

    A study that was started with other defaults of its agents is an error too.
    """
    from feelgood import agents
    from feelgood.envs.external import atari
    from feelgood.runs import store

    environments = {game: atari(game, **study.mapping("env_settings")) for game in study.games}
    for each in runs:
        if each.seed != runs[0].seed:
            continue  # only the seed differs
        for name in each.point:
            option = "vary" if each.varied is not None and name == each.varied[0] else "hyper"
            check_choice(f"{option} of {each.agent}", name, agents.ZOO[each.agent].hyper)
        environment, (hyper, _, options) = environments[each.game], settings(each)
        spaces = agents.Spaces(environment.observation_shape, environment.num_actions, environment.decode)
        agents.make_agent(each.agent, spaces, hyper, options)
    if store.holds(study.output, "atari", study):
        known = {run_task(each).file.removesuffix(".parquet") for each in runs}
        for path in sorted((study.output / "cells").glob("*-seed-*")):
            if not any(path.name.startswith(name) for name in known):
                raise ValueError(
                    f"output {study.output} holds {path.name}, a run of this study with defaults of another version; "
                    "finish it with that version or choose another folder"
                )
