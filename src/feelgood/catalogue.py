"""Names of agents, samplers, environments, studies, algorithms, MDPs and bandits, each with a summary and its paper.

Summaries and papers are read from the docstrings of the code.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from feelgood.studies import STUDIES

PAPER = "Ishfaq et al., RLC 2024"
"""The paper that docstrings call "the paper"."""


class Entry(NamedTuple):
    """A name, its summary, and its paper if it has one."""

    name: str
    summary: str
    paper: str | None


def _entry(name: str, thing: Any) -> Entry:
    """Makes an entry from a docstring, or that of an object: the first line, and the papers there or in References."""
    docstring = thing if isinstance(thing, str) else inspect.getdoc(thing) or ""
    first = docstring.partition("\n")[0]
    references = " ".join(docstring.partition("References:")[2].partition("\n\n")[0].split())
    papers = [PAPER] if re.search(r"\bthe paper\b", f"{first} {references}") else []
    papers += re.findall(r"\(([^()]+, \d{4})\)", first)
    for authors, year in re.findall(r"([A-Z][\w .,-]*) \((\d{4})\)", references):
        names = re.split(r", | and ", authors)
        papers.append(f"{names[0]} et al., {year}" if len(names) > 2 else f"{authors}, {year}")
    summary = re.sub(r" \([^()]+, \d{4}\)", "", first).rstrip(".")
    return Entry(name, summary, "; ".join(papers) or None)


def _returning(kind: type, module: Any) -> dict[str, Callable]:
    """The public functions of a module that return `kind`, by name."""
    named = {name: getattr(module, name) for name in module.__all__}
    return {
        name: thing
        for name, thing in named.items()
        if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is kind
    }


def _documented() -> dict[str, Mapping[str, Any]]:
    """Objects with a docstring, or their summaries, by kind and name; studies are left out, as these load JAX."""
    from feelgood import agents, bandits, envs, linear, samplers
    from feelgood.envs.diagnostic import DIAGNOSTICS
    from feelgood.linear import mdps

    # Variants of Algorithm 1 that differ only in their sampler share one function and have no docstring of their own.
    lines = {
        "ase_lmc": "LSVI-ASE, the paper's Algorithm 1, with Langevin Monte Carlo",
        "ase_ulmc": "LSVI-ASE, the paper's Algorithm 1, with underdamped Langevin Monte Carlo",
        "ase_baoab": "LSVI-ASE with a splitting scheme of low friction whose momentum is kept between episodes",
        "ase_exact": "LSVI-ASE with exact draws instead of a sampler",
    }
    factories = {"simplex": mdps.random_simplex, "lock": mdps.combination_lock}
    return {
        "agents": {name: recipe.make for name, recipe in agents.ZOO.items()},
        "samplers": _returning(samplers.Sampler, samplers),
        "environments": {**_returning(envs.Environment, envs), **DIAGNOSTICS},
        "algorithms": {name: lines.get(name) or getattr(linear, name) for name in linear.algorithms.ALGORITHMS},
        "mdps": {name: factories.get(name) or getattr(mdps, name) for name in mdps.SUITE},
        "bandits": bandits.ALGORITHMS,
    }


def _entries(kind: str) -> list[Entry]:
    is_studies = kind == "studies"
    named = {name: study.summary for name, study in STUDIES.items()} if is_studies else _documented()[kind]
    entries = [_entry(name, thing) for name, thing in named.items()]
    if kind == "agents":
        entries.sort(key=lambda entry: not entry.summary.endswith("recommended"))
        # The docstrings of the paper's own agents do not cite it.
        own = ("fg_ulmcdqn", "fg_lmcdqn", "ulmcdqn")
        entries = [entry._replace(paper=PAPER) if entry.name in own else entry for entry in entries]
    return entries


KINDS: dict[str, Callable[[], list[Entry]]] = {
    kind: partial(_entries, kind)
    for kind in ("agents", "samplers", "environments", "studies", "algorithms", "mdps", "bandits")
}
"""Functions that list the entries of each kind; all except studies load JAX."""
