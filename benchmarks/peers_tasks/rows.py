"""The comparisons of `benchmarks/peers.py`: pairs of a task of feelgood and a task of a peer."""

from dataclasses import dataclass

from peers_tasks.growth import CHAINS, RUNS
from peers_tasks.linear import EPISODES


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
      section: samplers, effective samples, CartPole, gradient steps, linear MDPs, runs, chains or cores.
      title: the task in words.
      peer: the package.
      task: name of the task in the worker.
      unit: unit of the value.
      function: the peer's function.
      lower_is_better: whether a smaller value is better.
      note: differences between the two.
      repeats: full and quick; with 0 the row is left out.
      field: name of the value in the worker's answer.
      own_task: feelgood's name of the task if it differs.
      own_repeats: feelgood's repeats if it has fewer; the last answer then counts again.
      peer_factor: number by which the peer's value is multiplied.
      size: runs, chains or episodes, in rows that show how cost grows.
      own_cores: cores of feelgood's process; the peer has one.
    """

    section: str
    title: str
    peer: str
    task: str
    unit: str
    function: str
    lower_is_better: bool = False
    note: str = ""
    repeats: tuple[int, int] = (5, 2)
    field: str = "value"
    own_task: str = ""
    own_repeats: int = 99
    peer_factor: float = 1.0
    size: int = 0
    own_cores: int = 1


_SAMPLERS = (
    ("langevin", "blackjax", "sgld"),
    ("langevin", "optax", "noisy_sgd"),
    ("langevin", "posteriors", "sgld"),
    ("underdamped", "blackjax", "sghmc"),
    ("underdamped", "posteriors", "sghmc"),
    ("mala", "blackjax", "mala"),
    ("hmc", "blackjax", "hmc"),
)
_REFRESHED = "blackjax draws the momentum again for each draw"
_NOTES = {
    ("langevin", "optax"): "noisy_sgd with gamma=0, so that its noise does not decay",
    ("hmc", "blackjax"): "feelgood without jitter",
}
_TARGETS = {"regression": "logistic regression, 1,000 × 25", "network": "network of 9,857 parameters"}


def _quadratic():
    for name, peer, function in _SAMPLERS:
        note, repeats = _NOTES.get((name, peer), ""), (9, 3)
        title = f"`{name}`{', 3 leapfrog steps' if name == 'hmc' else ''}"
        yield Row("samplers", title, peer, name, "ns per parameter and step", function, True, note, repeats)


def _posteriors():
    for target, words in _TARGETS.items():
        for name, peer, function in _SAMPLERS:
            is_torch = peer == "posteriors"
            if is_torch and name == "underdamped" and target == "network":
                continue  # its steps cost as much as those of sgld
            note = _REFRESHED if (name, peer) == ("underdamped", "blackjax") else _NOTES.get((name, peer), "")
            repeats = (3, 1) if is_torch or target == "network" else (5, 2)
            unit = "effective samples per second"
            title = f"`{name}`, {words}"
            yield Row("effective samples", title, peer, f"{name} {target}", unit, function, False, note, repeats)


_SETTINGS = "each with its published settings; feelgood's environment is functional"
_UNTIL, _STEPS = "seconds until a mean return of 475", "environment steps per second"


def _cart_pole():
    for peer, function in (("stable-baselines3", "DQN"), ("cleanrl", "dqn_jax")):
        for agent, note in (
            ("dqn", _SETTINGS),
            ("fg_ulmcdqn", f"another algorithm; {_SETTINGS}"),
            ("ensemble_dqn", f"20 networks against one; {_SETTINGS}"),
        ):
            for unit, is_time in ((_STEPS, False), (_UNTIL, True)):
                one = ("CartPole", f"`{agent}`, CartPole, 1 seed", peer, "CartPole dqn", unit, function, is_time, note)
                quick = 1 if not is_time and agent != "ensemble_dqn" else 0
                yield Row(*one, (3, quick), "value" if is_time else "rate", f"CartPole {agent}")
                if agent == "ensemble_dqn":
                    continue
                title = f"`{agent}`, CartPole, 20 seeds"
                many = ("CartPole", title, peer, "CartPole dqn", unit, function, is_time)
                yield Row(
                    *many,
                    f"the peer's seeds run one after the other, so its seconds are 20 times those of one; {note}"
                    if is_time
                    else f"the peer's seeds run one after the other; {note}",
                    (3, 0),
                    "value" if is_time else "rate",
                    f"CartPole {agent}, 20 seeds",
                    1,
                    20.0 if is_time else 1.0,
                )


_PROBLEMS = {"nchain": "N-chain, N = 25", "deep_sea": "DeepSea, N = 20"}
_UPDATES, _MEMBER_UPDATES = "gradient steps per second", "gradient steps of one network per second"
_EVALUATED = "feelgood's figure includes an evaluation episode"


def _gradient_steps():
    section, repeats = "gradient steps", (3, 1)
    for problem, words in _PROBLEMS.items():
        for peer, function in (("purejaxrl", "dqn"), ("rejax", "DQN")):
            for extra in ("", ", 20 runs"):
                task, title = f"dqn {problem}{extra}", f"`dqn`, {words}{extra}"
                yield Row(section, title, peer, task, _UPDATES, function, False, _EVALUATED, repeats)
            title, note = f"`fg_ulmcdqn`, {words}", f"another algorithm, with noise; {_EVALUATED}"
            task, own = f"dqn {problem}", f"fg_ulmcdqn {problem}"
            yield Row(section, title, peer, task, _UPDATES, function, False, note, repeats, own_task=own)
        task, peer, function = f"bootstrapped_dqn {problem}", "bsuite", "boot_dqn"
        for agent, note in (
            ("bootstrapped_dqn", "bsuite steps one member after the other, from Python"),
            ("ensemble_dqn", "another algorithm; bsuite steps one member after the other, from Python"),
        ):
            title, own = f"`{agent}`, 20 members, {words}", f"{agent} {problem}"
            yield Row(section, title, peer, task, _MEMBER_UPDATES, function, False, note, repeats, own_task=own)
    for capacity in (2_000, 50_000):
        title, task = f"`dqn`, functional CartPole, replay of {capacity:,}", f"dqn CartPole {capacity}"
        yield Row(section, title, "rejax", task, _UPDATES, "DQN", False, _EVALUATED, repeats)


def _linear():
    for size in EPISODES:
        title = f"`lsvi_ucb`, {size:,} episodes, d = 10, H = 10"
        note = "the loop regresses on all past transitions; feelgood keeps sums, and also computes the exact regret"
        base = ("linear MDPs", title, "numpy", f"lsvi_ucb {size}", "episodes per second", "loop", False, note)
        yield Row(*base, (5, 2) if size < 1_000 else (3, 1))


def _growth():
    for size in RUNS:
        title, repeats = f"`dqn`, N-chain, {size:,} run{'s' * (size > 1)}, replay of 1,000", (3, int(size < 1_000))
        base = ("runs", title, "purejaxrl", f"dqn {size} runs", _UPDATES, "dqn", False, _EVALUATED, repeats)
        yield Row(*base, size=size)
    for size in CHAINS:
        title, note = f"`hmc`, logistic regression, {size} chain{'s' * (size > 1)}", _NOTES["hmc", "blackjax"]
        base = ("chains", title, "blackjax", f"hmc {size} chains", "draws per second", "hmc", False, note, (3, 1))
        yield Row(*base, size=size)
    title = "`fg_ulmcdqn`, N-chain, 20 runs on two cores"
    base = ("cores", title, "feelgood", "cores", "gradient steps per second (wall clock)", "on one core", False)
    yield Row(*base, "wall clock", (7, 2), own_cores=2)


ROWS = (*_quadratic(), *_posteriors(), *_cart_pole(), *_gradient_steps(), *_linear(), *_growth())
