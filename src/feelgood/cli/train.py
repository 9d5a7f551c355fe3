"""`feelgood train`."""

import importlib.util
import math
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from feelgood.checks import check_count, check_finite
from feelgood.cli import COMMANDS
from feelgood.cli.parsing import parse_options
from feelgood.cli.work import interruptible, set_up_jax
from feelgood.pairs import read_numbers, read_seeds, read_values
from feelgood.protocols import ATARI
from feelgood.studies.options import PresetInt, grouped, read_options

if TYPE_CHECKING:
    Preset: TypeAlias = str
else:
    Preset = Literal[("auto", *ATARI)]
"""The name of an Atari protocol, or auto."""

FILES = {
    "curves.parquet": "a row per seed and evaluation",
    "curves.png": "the evaluation return against steps",
    "curves.pdf": "the same as PDF",
    "policy": "the trained parameters, for `feelgood.load_policy`, `feelgood evaluate` and `feelgood record`",
    "best_policy": "the parameters with the highest evaluation return, for `feelgood evaluate --best`",
    "logs": "the curves, written during training",
    "tensorboard": "the same for TensorBoard",
}


@dataclass(frozen=True)
class TrainOptions:
    """Trains agents in Gymnasium environments or Atari games."""

    env: str = ""
    """A Gymnasium name such as CartPole-v1, or an Atari game as in atari:venture."""
    envs: tuple[str, ...] = ()
    """Several environments instead of env."""
    env_settings: tuple[str, ...] = grouped("agent and training", ())
    """Settings of the environment, as in pixel_scale=0.0625 life_loss=false for an Atari game, or map_name=8x8."""
    agent: str = "auto"
    """Agent, see `feelgood list agents`. "auto" selects fg_ulmcdqn for Atari games and ensemble_dqn otherwise."""
    agents: tuple[str, ...] = ()
    """Several agents instead of agent."""
    num_steps: PresetInt = None
    """Environment steps (default: 50,000; Atari games: 12,500,000)."""
    seed: int = 0
    """First seed. A seed determines initialisation, noise, minibatches and environments."""
    num_seeds: int = 1
    """Number of runs, one after the other, with consecutive seeds."""
    seeds: tuple[str, ...] = ()
    """Seeds instead of seed and num_seeds, as in 3 7 11 or 0-19."""
    num_envs: PresetInt = grouped("agent and training", None)
    """Environments that step in parallel (default: 8; Atari games: 300)."""
    hyper: tuple[str, ...] = grouped("agent and training", ())
    """Hyper-parameters that differ from the defaults, as in step_size=1e-2 friction=10."""
    config: tuple[str, ...] = grouped("agent and training", ())
    """Other training settings, as in batch_size=64 n_step=3 target_update_period=200 capacity=50000."""
    hidden: tuple[int, ...] = grouped("agent and training", ())
    """Widths of the hidden layers (default: 64 64)."""
    options: tuple[str, ...] = grouped("agent and training", ())
    """Agent options, as in double=true prioritized=true form=corrected critic=quantile; the names are those of
    `feelgood.agents.Options`."""
    preset: Preset = "auto"
    """Protocol of an Atari game, see `feelgood.protocols`. "auto" selects prioritized. The agent and training options
    override single settings."""
    output: Path = Path("runs/train")
    """Folder for curves, policy, checkpoints and manifest; unfinished training there is continued."""
    tensorboard: bool = grouped("logging", False)
    """Whether to log curves to TensorBoard in OUTPUT/tensorboard (needs the extra tensorboard)."""
    wandb_project: str = grouped("logging", "")
    """Project of Weights & Biases to log curves to (needs the extra wandb)."""

    def __post_init__(self):
        if bool(self.env) == bool(self.envs):
            raise ValueError(f"one of --env and --envs must be given, got {self.env!r} and {' '.join(self.envs)!r}")
        if self.agents and self.agent != "auto":
            raise ValueError(f"one of --agent and --agents must be given, got {self.agent!r} and {self.agents!r}")
        for name in ("envs", "agents"):
            if len({*getattr(self, name)}) < len(getattr(self, name)):
                raise ValueError(f"{name} must be different, got {' '.join(getattr(self, name))}")
        if self.agent == "auto" and self.env and not self.agents:
            object.__setattr__(self, "agent", _agent("auto", self.env))
        for name in ("num_steps", "num_envs"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, minimum=0)
        check_count("num_seeds", self.num_seeds)
        self.seed_list()
        for width in self.hidden:
            check_count("hidden", width)
        self.hyper_parameters()
        self.environment()
        self.agent_options()
        self.settings()
        logs = (self.tensorboard, "tensorboardX", "tensorboard"), (self.wandb_project, "wandb", "wandb")
        for wanted, package, extra in logs:
            if wanted and importlib.util.find_spec(package) is None:
                raise ValueError(f"{extra} needs a package that is not installed: pip install 'feelgood[{extra}]'")

    def pairs(self) -> list[tuple[str, str]]:
        """Every environment with every agent."""
        envs, agents = self.envs or (self.env,), self.agents or (self.agent,)
        return [(env, _agent(agent, env)) for env in envs for agent in agents]

    def seed_list(self) -> list[int]:
        """The seeds as numbers."""
        return read_seeds(self.seeds or [f"{self.seed}-{self.seed + self.num_seeds - 1}"])

    def hyper_parameters(self) -> dict[str, float]:
        """`hyper` as numbers by name."""
        return _numbers("hyper", self.hyper)

    def environment(self) -> dict[str, Any]:
        """`env_settings` by name."""
        return read_values("env_settings", self.env_settings)

    def agent_options(self) -> dict[str, Any]:
        """`options` by name, and `hidden` if given."""
        return _joined("options", read_options(self.options), {"hidden": self.hidden} if self.hidden else {})

    def settings(self) -> dict[str, int | float]:
        """`config` as numbers by name, with `num_steps` and `num_envs` if given; whole numbers as integers."""
        numbers = _numbers("config", self.config)
        given = {name: int(value) if value == int(value) else value for name, value in numbers.items()}
        own = {"num_steps": self.num_steps, "num_envs": self.num_envs}
        return _joined("config", given, {name: value for name, value in own.items() if value is not None})


def _joined(field: str, given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings given by `field` and those with an option of their own; both may give the same value."""
    for name, value in own.items():
        if given.get(name, value) != value:
            option = name.replace("_", "-")
            raise ValueError(f"{name} must have one value, got {value} by --{option} and {given[name]} by --{field}")
    return {**given, **own}


def _agent(name: str, env: str) -> str:
    """The name of the agent, where auto depends on the environment."""
    return name if name != "auto" else "fg_ulmcdqn" if env.startswith("atari:") else "ensemble_dqn"


def _numbers(field: str, words: Sequence[str]) -> dict[str, float]:
    found = read_numbers(field, words)
    for name, value in found.items():
        check_finite(f"{field} {name}", value)
    return found


def train(arguments: Sequence[str]) -> None:
    """Trains an agent."""
    options = parse_options(TrainOptions, arguments, "feelgood train", COMMANDS["train"].example)
    execute(options, again=shlex.join(["feelgood", "train", *arguments]))


def execute(options: TrainOptions, again: str) -> None:
    """Trains an agent; `again` is the command that continues after Ctrl-C."""
    from feelgood.runs import store

    if importlib.util.find_spec("gymnasium") is None:
        raise ValueError("env needs a package that is not installed: pip install gymnasium")
    if store.is_finished(options.output, "train", options):
        print(f"train in {options.output} is finished already; to train again, choose another folder or remove it")
        return
    set_up_jax()
    with interruptible(again):
        for line in run(options):
            print(line)


def run(options: TrainOptions) -> list[str]:
    """Trains, or continues unfinished training in the folder; returns lines with the results and the next commands."""
    from feelgood.api import merged, pair_name, prepare, train_external
    from feelgood.runs import store
    from feelgood.runs.progress import bar
    from feelgood.signals import Interrupted

    seeds = options.seed_list()
    hyper, chosen, env_settings = options.hyper_parameters(), options.agent_options(), options.environment()
    config, preset = options.settings(), None if options.preset == "auto" else options.preset
    # Raises errors before anything is written.
    jobs = {
        pair_name(agent, env): prepare(agent, env, seeds, hyper, chosen, env_settings, config=config, preset=preset)
        for env, agent in options.pairs()
    }
    settings = [job.settings for job in jobs.values()]
    command = store.as_command("train", options).replace("feelgood run train", "feelgood train", 1)
    checkpoint, results = options.output / "checkpoint", []
    about: dict[str, Any] = {"seeds": {"training": seeds}, "files": FILES, "command": command}
    about["settings"] = settings[0] if len(jobs) == 1 else settings
    with store.recorded(options.output, "train", options, **about), bar() as progress:
        for name, job in jobs.items():
            folder = "" if len(jobs) == 1 else name
            with _reports(options, job, folder, progress) as (report, tick):
                print_line = lambda text: print(text, file=sys.stderr)
                try:
                    results.append(train_external(job, checkpoint / folder, report, print_line, tick))
                except Interrupted as stop:
                    if len(jobs) * len(seeds) == 1:
                        stop.so_far.save_policies(options.output)
                    raise
        result = merged(results)
        paths = result.save(options.output)
    shutil.rmtree(checkpoint, ignore_errors=True)  # not needed once the run is finished
    # The files of a policy are named by their folder.
    written = dict.fromkeys(path.parent if path.name.startswith("policy.") else path for path in paths)
    return [*(f"wrote {path}" for path in written), *result.summary(), *_advice(result, options)]


def _advice(result: Any, options: TrainOptions) -> list[str]:
    """Advice if an agent has not learnt, and commands that read the results."""
    stuck = result.not_above_random()
    lines = [sentence for _, sentence in stuck]
    if stuck:
        lines += [
            "to try: more steps (--num-steps), other agents (--agents ensemble_dqn dqn), longer returns (--config "
            "n_step=5), rewards scaled to at most about 1, and a check of the environment:",
            *(f"  feelgood check {env}" for env in dict.fromkeys(env for env, _ in stuck)),
        ]
    output = shlex.quote(str(options.output))
    lines += ["next:", f"  feelgood report {output} -o report.html", f"  feelgood plot {output} --kind curves"]
    lines += [f"  feelgood compare {output}"] if len(options.pairs()) > len(options.envs or (0,)) else []
    # Policies store the name of an environment, and evaluation imports a module only with --allow-import.
    is_imported = any(":" in env and not env.startswith("atari:") for env, _ in options.pairs())
    trust = " --allow-import" if is_imported else ""
    commands = (f"evaluate {output} --num-episodes 20", f"record {output} -o game.gif")
    return [*lines, *(f"  feelgood {command}{trust}" for command in commands)]


@contextmanager
def _reports(
    options: TrainOptions, job: Any, place: str, progress: Any
) -> Iterator[tuple[Callable[[int, Mapping[str, Any]], None], Callable[[int, int, float], None]]]:
    """Yields a function that logs rows of curves, and one that updates the progress bar between them.

    `place` is the folder of the job in the folders of logs.
    """
    from feelgood.runs import sinks
    from feelgood.runs.progress import follow
    from feelgood.runs.store import fingerprint

    output, env, agent, project = options.output, job.environment.name, job.spec.name, options.wandb_project
    config = {key: str(value) for key, value in {**job.settings, "output": output}.items()}
    own: dict[int, Any] = {}
    with ExitStack() as stack:
        for seed in job.seeds:
            # A resumed run reports its curve from the start.
            each = [sinks.csv(output / "logs" / place / f"seed-{seed}.csv", overwrite=True)]
            if options.tensorboard:
                each.append(sinks.tensorboard(output / "tensorboard" / place / f"seed-{seed}", first_step=0))
            if project:
                name = f"{env}-{agent}-seed-{seed}".replace("/", "-").replace(":", "-")
                mark, folder = fingerprint(config, str(output.resolve()), seed), output / "wandb"
                folder.mkdir(parents=True, exist_ok=True)
                each.append(sinks.wandb(project, name=name, folder=folder, config=config, identity=mark))
            own[seed] = sinks.combine(*each)
            stack.callback(own[seed].close)
        show, tick = stack.enter_context(follow(progress, f"{env} {agent}", job.seeds, job.config.num_steps))

        def report(seed: int, row: Mapping[str, Any]) -> None:
            show(seed, row)
            names = ("return", "training_return", "action_changes", "potential", "seconds")
            own[seed].log(row["step"], {name: row[name] for name in names if math.isfinite(row[name])})

        yield report, tick
