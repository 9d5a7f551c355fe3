"""The Atari study, after the paper's Figure 2 and table of scores: eight hard games, nine agents, 50 million frames.

A run is a game, an agent, a seed and a point of hyper-parameters; each is kept in a file of its own. While it goes, a
folder beside that file holds its replay and its last checkpoint. Presets: `feelgood.studies.atari.presets`.
"""

import importlib.util
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from feelgood.checks import check_choice, check_count, check_fraction, check_positive, check_probability
from feelgood.choices import FORMS, INITS, Form, Init
from feelgood.pairs import read_lists, read_numbers
from feelgood.studies.atari.paper import GAMES
from feelgood.studies.atari.presets import PRESETS
from feelgood.studies.atari.runs import FRAMES_PER_STEP, Run, plan, run_task, settings
from feelgood.studies.engine import EngineOptions, run_plans
from feelgood.studies.nchain.study import GRIDS

__all__ = ["AtariStudy", "run", "runs_of"]

SMOKE_FRAMES = 1_000_000
"""Runs of fewer frames are no results."""


@dataclass(frozen=True)
class AtariStudy(EngineOptions):
    """Hard exploration on Atari: learning curves and scores beside the paper's. Needs the extra atari."""

    preset: Literal["quick", "paper", "scaled", "sparse", "dopamine", "eta", "gamma"] = "quick"
    """quick: one game for 20,000 frames, minutes on two cores; a smoke test, not a result. paper: the paper's protocol
    in 300 parallel environments; for a GPU. scaled: the same on pixels divided by 255, with what suits them; the one to
    use. sparse: the one to use where rewards are rare, as in Venture. dopamine: scaled with sticky actions, and games
    instead of lives as episodes. eta, gamma: on Alien, FG-ULMCDQN against the feel-good weight and ULMCDQN against the
    friction."""
    games: tuple[str, ...] = ()
    """Games, in ALE's spelling; empty for the preset's."""
    agents: tuple[str, ...] = ()
    """Agents; empty for the preset's."""
    num_frames: int = 0
    """Emulator frames of a run, four a step; 0 for the preset's."""
    num_seeds: int = 0
    """Seeds; 0 for the preset's."""
    hyper: tuple[str, ...] = ()
    """Hyper-parameters of all agents, as in feel_good_weight=0.01 friction=10; the rest are at their Atari defaults."""
    vary: tuple[str, ...] = ()
    """Hyper-parameters to vary one at a time, as in feel_good_weight=1,1e-2,1e-3; empty for the preset's."""
    num_envs: int = 0
    """Environments that step in parallel; 0 for the preset's."""
    num_groups: int = 0
    """Groups of environments that take turns: while actions are chosen for one, the others step; 0 for the preset's, or
    fewer where environments cannot be dealt into so many."""
    num_chains: int = 0
    """Independent chains that share one replay; 0 for the preset's."""
    num_draws: int = 0
    """Positions of a chain that act at the same time; 0 for the preset's."""
    draw_steps: int = 0
    """Steps of its environments that each of them acts for; 0 for the preset's."""
    pixel_scale: float = 0.0
    """What pixels, 0 to 255, are multiplied with: 1 in the paper's code; 0 for the preset's."""
    sticky: float = -1.0
    """Probability that an action is repeated; below 0 for the preset's."""
    episode: Literal["preset", "life", "game"] = "preset"
    """What an episode of training ends with."""
    learning_starts: int = 0
    """Environment steps before the first gradient step; 0 for the preset's."""
    replay_ratio: float = 0.0
    """Gradient steps per environment step; 0 for the preset's."""
    batch_size: int = 0
    """Transitions in a minibatch; 0 for the preset's."""
    capacity: int = 0
    """Frames in the replay, 7 kB each; 0 for the preset's."""
    n_step: int = 0
    """Steps that a return spans; 0 for the preset's."""
    discount: float = 0.0
    """Of future rewards; 0 for the preset's."""
    target_update_period: int = 0
    """Gradient steps between two copies to the target network; 0 for the preset's."""
    evaluation_frames: int = 0
    """Frames between two evaluations; 0 for the preset's."""
    num_evaluation_episodes: int = 0
    """Full games in an evaluation; 0 for the preset's."""
    max_evaluation_steps: int = 0
    """An evaluation's game is cut off after so many steps; 0 for the preset's."""
    num_stagger_turns: int = 0
    """Each environment begins anew once in its first so many steps, to spread them out; 0 for the preset's."""
    prioritized: bool = False
    """Whether transitions are replayed by priority, whatever the agent."""
    priority_exponent: float = -1.0
    """α of agents with priorities; below 0 for the preset's."""
    importance_exponent: float = -1.0
    """β of agents with priorities at the start, 1 at the end; below 0 for the preset's."""
    form: Literal["preset", Form] = "preset"
    """Form of the adaptive samplers, see `feelgood.agents.Options`."""
    init: Literal["preset", Init] = "preset"
    """Weights that networks start with: PyTorch's; these without biases, so that draws from the prior look; or He's."""
    reference: tuple[Path, ...] = ()
    """CSV files of published curves to draw ours against, with columns agent, game, seed, frame, return."""
    checkpoints: bool = True
    """Whether a run is kept on disk while it goes, its replay included, to go on with after a stop."""
    output: Path = Path("runs/atari")
    """Folder for results; one that holds an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, PRESETS)
        groups_are_ours_to_choose = self.num_groups == 0
        for name, value in PRESETS[self.preset].items():
            given = getattr(self, name)
            if given < 0 if name in _FROM_ZERO else given in (0, (), "preset"):
                object.__setattr__(self, name, value)
        for game in self.games:
            check_choice("games", game, _known_games())
        for agent in self.agents:
            check_choice("agents", agent, GRIDS)
        for name in ("games", "agents"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must not repeat, got {values!r}")
        check_choice("episode", self.episode, ("life", "game"))
        check_choice("form", self.form, FORMS)
        check_choice("init", self.init, INITS)
        check_positive("pixel_scale", self.pixel_scale)
        check_fraction("sticky", self.sticky)
        check_probability("discount", self.discount)
        check_positive("replay_ratio", self.replay_ratio)
        check_positive("replay_ratio", self.replay_ratio)
        for name in _COUNTS:
            check_count(name, getattr(self, name))
        if groups_are_ours_to_choose:
            from feelgood.training.config import most_groups

            object.__setattr__(self, "num_groups", most_groups(self.num_envs, self.num_chains, self.num_groups))
        if self.evaluation_frames % FRAMES_PER_STEP:
            raise ValueError(f"evaluation_frames must be a multiple of {FRAMES_PER_STEP}, got {self.evaluation_frames}")
        if self.num_frames % self.evaluation_frames:
            raise ValueError(
                f"num_frames must be a multiple of evaluation_frames = {self.evaluation_frames}, got {self.num_frames}"
            )
        if self.learning_starts * FRAMES_PER_STEP >= self.num_frames:
            most = self.num_frames // FRAMES_PER_STEP
            raise ValueError(f"learning_starts must be below {most}, all steps of a run, got {self.learning_starts}")
        fixed = read_numbers("hyper", self.hyper)
        for name in read_lists("vary", self.vary):
            if name in fixed:
                raise ValueError(f"vary must name what hyper does not, got {name!r} in both")

    @property
    def config(self) -> dict[str, Any]:
        """Arguments of `feelgood.training.config.ExternalConfig`."""
        steps = {
            "num_steps": self.num_frames // FRAMES_PER_STEP,
            "evaluation_period": self.evaluation_frames // FRAMES_PER_STEP,
        }
        return {**{name: getattr(self, name) for name in _CONFIG}, **steps}

    @property
    def emulator(self) -> dict[str, Any]:
        """Arguments of `feelgood.envs.external.atari`."""
        return {"sticky": self.sticky, "life_loss": self.episode == "life", "pixel_scale": self.pixel_scale}


# Fields that the config counts in steps and the study in frames are not in this list.
_CONFIG = (
    "num_envs",
    "num_groups",
    "num_chains",
    "num_draws",
    "draw_steps",
    "learning_starts",
    "replay_ratio",
    "batch_size",
    "capacity",
    "n_step",
    "discount",
    "target_update_period",
    "num_evaluation_episodes",
    "max_evaluation_steps",
    "num_stagger_turns",
    "priority_exponent",
    "importance_exponent",
)
_COUNTS = (
    "num_frames",
    "num_seeds",
    "evaluation_frames",
    *(name for name in _CONFIG if name not in ("discount", "replay_ratio") and not name.endswith("_exponent")),
)
# Zero means something for these.
_FROM_ZERO = ("sticky", "priority_exponent", "importance_exponent")


def _known_games() -> Sequence[str]:
    """All games of the emulator, or where it is missing those of the paper: then a run says what to install."""
    if importlib.util.find_spec("ale_py") is None:
        return GAMES
    import ale_py.roms

    return ale_py.roms.get_all_rom_ids()


FILES = {
    "curves.parquet": "a row per run and evaluation, with the hyper-parameters of the run",
    "summary.csv": "a row per game and agent: scores with 95% confidence intervals over seeds, and the paper's",
    "overall.csv": "a row per agent: human-normalised scores over all games, with 95% bootstrap intervals",
    "summary.md": "both for people",
    "sensitivity.csv": "a row per game, agent, parameter and value: scores with 95% confidence intervals over seeds",
    "sensitivity.md": "the same for people",
    "curves.png": "learning curves, a panel for each game",
    "curves.pdf": "learning curves, a panel for each game",
    "sensitivity.png": "learning curves and scores for each value",
    "sensitivity.pdf": "learning curves and scores for each value",
}


def runs_of(study: AtariStudy) -> list[Run]:
    """All runs of a study: the first seed of everything first."""
    fixed, lists = read_numbers("hyper", study.hyper), read_lists("vary", study.vary)
    varied = [(name, value) for name, values in lists.items() for value in values]
    points: list[tuple[str, float] | None] = [*varied] or [None]
    every = itertools.product(range(study.num_seeds), study.games, study.agents, points)
    return [
        Run(
            game,
            agent,
            seed,
            {**fixed, **dict([point] if point else [])},
            point,
            study.config,
            study.emulator,
            cast(Form, study.form),
            cast(Init, study.init),
            study.prioritized,
        )
        for seed, game, agent, point in every
    ]


def run(study: AtariStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.figures import style
    from feelgood.figures.draw import draw
    from feelgood.runs import store
    from feelgood.studies.atari import charts
    from feelgood.studies.atari import tables as results

    runs = runs_of(study)
    _check(study, runs)
    published = results.read_reference(study.reference) if study.reference else None
    seeds = {"all": range(study.num_seeds)}
    with store.recorded(study.output, "atari", study, seeds=seeds, files=FILES) as facts:
        cells = study.output / "cells"
        plans = [plan(each, cells, checkpoints=study.checkpoints) for each in runs]
        done = run_plans(study, plans, study.output, facts)
        order = sorted(range(len(runs)), key=lambda i: study.games.index(runs[i].game))  # stable
        curves = pd.concat([done[i] for i in order], ignore_index=True)
        store.write_table(study.output / "curves.parquet", curves)
        paths = [study.output / "curves.parquet"]
        if study.vary:
            table = results.sensitivity(curves)
            texts = {
                "sensitivity.csv": table.to_csv(index=False),
                "sensitivity.md": results.sensitivity_as_markdown(table),
            }
            figure = {"sensitivity": draw(charts.sensitivity_curves(curves))}
        else:
            summary, overall = results.summarise(curves, published), results.overall(curves)
            texts = {
                "summary.csv": summary.to_csv(index=False),
                "overall.csv": overall.to_csv(index=False),
                "summary.md": results.as_markdown(summary, overall),
            }
            figure = {"curves": draw(charts.curves_and_published(curves, published))}
        if study.num_frames < SMOKE_FRAMES:
            *_, last = texts
            texts[last] = f"A smoke test of {study.num_frames:,} frames, not a result.\n\n{texts[last]}"
        for name, text in texts.items():
            store.write_text(study.output / name, text)
            paths.append(study.output / name)
        report(texts[name])
        for name, drawn in figure.items():
            paths += style.save(drawn, study.output / name)
        for path in cells.glob("*.so-far.csv"):
            path.unlink()
    return paths


def _check(study: AtariStudy, runs: Sequence[Run]) -> None:
    """Refuses what cannot run before anything is written: games without ROM, points that make no agent, protocols.

    And what must not go on: a study that was begun when the defaults of its agents were others.
    """
    from feelgood import agents
    from feelgood.envs.external import atari
    from feelgood.runs import store

    tasks = {game: atari(game, **study.emulator) for game in study.games}
    for each in runs:
        if each.seed:
            continue  # the same but for the seed
        for name in each.point:
            option = "vary" if each.varied is not None and name == each.varied[0] else "hyper"
            check_choice(f"{option} of {each.agent}", name, agents.ZOO[each.agent].hyper)
        task, (hyper, _, options) = tasks[each.game], settings(each)
        spaces = agents.Spaces(task.observation_shape, task.num_actions, task.decode)
        agents.make_agent(each.agent, spaces, hyper, options)
    if store.holds(study.output, "atari", study):
        known = {run_task(each).file.removesuffix(".parquet") for each in runs}
        for path in sorted((study.output / "cells").glob("*-seed-*")):
            if not any(path.name.startswith(name) for name in known):
                raise ValueError(
                    f"output {study.output} holds {path.name}, a run of this study with defaults of another version; "
                    "finish it with that version or choose another folder"
                )
