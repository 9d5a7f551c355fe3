"""Names of agents, samplers, environments, studies, algorithms, MDPs and bandits, each with a summary and its paper.

Summaries and papers are read from the docstrings of the code.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from feelgood.studies import STUDIES

PAPER = "Ishfaq et al., RLC 2024"
"""The paper that docstrings call "the paper"."""


class Entry(NamedTuple):
    """A name, its summary, and its paper if it has one."""

    name: str
    summary: str
    paper: str | None


def _short(authors: str) -> str:
    names = re.split(r", | and ", authors)
    return f"{names[0]} et al." if len(names) > 2 else authors


def _entry(name: str, docstring: str) -> Entry:
    """Makes an entry from a docstring: its first line, and the papers named there or under "References"."""
    first = docstring.partition("\n")[0]
    references = " ".join(docstring.partition("References:")[2].partition("\n\n")[0].split())
    papers = [PAPER] if re.search(r"\bthe paper\b", f"{first} {references}") else []
    papers += re.findall(r"\(([^()]+, \d{4})\)", first)
    papers += [f"{_short(who)}, {year}" for who, year in re.findall(r"([A-Z][\w .,-]*) \((\d{4})\)", references)]
    summary = re.sub(r" \([^()]+, \d{4}\)", "", first).rstrip(".")
    return Entry(name, summary, "; ".join(papers) or None)


def _documented(name: str, thing: Any) -> Entry:
    return _entry(name, inspect.getdoc(thing) or "")


def _returning(kind: type, module: Any) -> Iterable[tuple[str, Callable]]:
    """The public functions of a module that return `kind`, by name."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is kind:
            yield name, thing


def _agents() -> list[Entry]:
    from feelgood.agents import ZOO

    entries = [_documented(name, recipe.make) for name, recipe in ZOO.items()]
    entries.sort(key=lambda entry: not entry.summary.endswith("recommended"))
    # The docstrings of the paper's own agents do not cite it.
    own = ("fg_ulmcdqn", "fg_lmcdqn", "ulmcdqn")
    return [entry._replace(paper=PAPER) if entry.name in own else entry for entry in entries]


def _samplers() -> list[Entry]:
    from feelgood import samplers

    return [_documented(name, factory) for name, factory in _returning(samplers.Sampler, samplers)]


def _environments() -> list[Entry]:
    from feelgood import envs
    from feelgood.envs.diagnostic import DIAGNOSTICS

    factories = [*_returning(envs.Environment, envs), *DIAGNOSTICS.items()]
    return [_documented(name, factory) for name, factory in factories]


def _studies() -> list[Entry]:
    return [_entry(name, study.summary) for name, study in STUDIES.items()]


def _algorithms() -> list[Entry]:
    from feelgood import linear

    # Variants of Algorithm 1 that differ only in their sampler share one function and have no docstring of their own.
    lines = {
        "ase_lmc": "LSVI-ASE, the paper's Algorithm 1, with Langevin Monte Carlo",
        "ase_ulmc": "LSVI-ASE, the paper's Algorithm 1, with underdamped Langevin Monte Carlo",
        "ase_baoab": "LSVI-ASE with a splitting scheme of low friction whose momentum is kept between episodes",
        "ase_exact": "LSVI-ASE with exact draws instead of a sampler",
    }
    return [
        _entry(name, lines[name]) if name in lines else _documented(name, getattr(linear, name))
        for name in linear.algorithms.ALGORITHMS
    ]


def _mdps() -> list[Entry]:
    from feelgood.linear import mdps

    factories = {"simplex": mdps.random_simplex, "lock": mdps.combination_lock}
    return [_documented(name, factories.get(name) or getattr(mdps, name)) for name in mdps.SUITE]


def _bandits() -> list[Entry]:
    from feelgood import bandits

    return [_documented(name, algorithm) for name, algorithm in bandits.ALGORITHMS.items()]


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "agents": _agents,
    "samplers": _samplers,
    "environments": _environments,
    "studies": _studies,
    "algorithms": _algorithms,
    "mdps": _mdps,
    "bandits": _bandits,
}
"""Functions that list the entries of each kind; all except studies load JAX."""
