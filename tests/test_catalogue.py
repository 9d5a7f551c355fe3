"""The catalogue: its names are those the library accepts, its lines and papers are those of the code."""

import jax
import numpy as np
import pytest

from feelgood import agents, bandits, catalogue, envs, linear, samplers
from feelgood.agents.options import Spaces
from feelgood.cli import COMMANDS
from feelgood.cli.parsing import parse_options
from feelgood.envs.diagnostic import DIAGNOSTICS
from feelgood.studies.bandits import study as bandits_study
from feelgood.studies.nchain import study as nchain
from feelgood.studies.regret import study as regret_study


def names(kind):
    return [entry.name for entry in catalogue.KINDS[kind]()]


def test_the_help_of_the_command_line_names_every_kind():
    *others, last = catalogue.KINDS
    assert COMMANDS["list"].summary == f"list {', '.join(others)} and {last} with their papers"


@pytest.mark.parametrize(("module", "options"), [(bandits_study, "BanditsStudy"), (regret_study, "RegretStudy")])
def test_the_help_of_a_study_names_every_part(capsys, module, options):
    with pytest.raises(SystemExit):
        parse_options(getattr(module, options), ["--help"], "feelgood run", "feelgood run")
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    named = [*module.PARTS]
    if module is bandits_study:
        named += [name for name in module.PROBLEMS if name not in module.WHEELS[1:-1]]  # a range of five
    assert [name for name in named if name not in said] == []


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_entry_has_a_name_of_its_own_and_one_line(kind):
    entries = catalogue.KINDS[kind]()
    assert len({entry.name for entry in entries}) == len(entries) > 0
    for entry in entries:
        assert len(entry.summary) > 10
        assert "\n" not in entry.summary
        assert entry.paper is None or entry.paper not in entry.summary


def test_agents_are_those_that_can_be_made_and_studied():
    for name in names("agents"):
        assert callable(agents.make_agent(name, Spaces((4,), 2)).init)
    assert names("agents")[0] == "ensemble_dqn"
    assert set(names("agents")) == set(agents.ZOO) == set(nchain.GRIDS)


def test_samplers_are_all_that_the_room_offers():
    listed = names("samplers")
    other = {
        "adaptive_bias",
        "diagnostics",
        "largest_curvature",
        "linear_regression",
        "sample",
        "suggest_step_size",
        "to_optax",
    }
    public = {name for name in samplers.__all__ if name.islower()}
    assert set(listed) == public - other
    sampler = getattr(samplers, listed[listed.index("mala")])(0.1)
    assert isinstance(sampler, samplers.Sampler)


def test_environments_can_be_built_and_reset():
    assert names("environments") == ["acrobot", "cart_pole", "deep_sea", "mountain_car", "nchain", *DIAGNOSTICS]
    for name in names("environments"):
        built = DIAGNOSTICS[name]().environment if name in DIAGNOSTICS else getattr(envs, name)(5)
        assert isinstance(built, envs.Environment)


def test_algorithms_and_mdps_are_those_that_the_regret_study_accepts():
    assert names("algorithms") == list(linear.algorithms.ALGORITHMS)
    assert names("mdps") == list(linear.mdps.SUITE)


def test_bandits_are_the_algorithms_that_a_policy_accepts():
    for name in names("bandits"):
        settings = {"feel_good": {"weight": 0.1}} if name == "fgts" else {}
        policy = bandits.Policy(name, num_arms=2, num_features=2, shared=name == "polya_gamma_ts", settings=settings)
        assert policy.algorithm == name
    regret_study.RegretStudy(algorithms=tuple(names("algorithms")), mdps=tuple(names("mdps")))


def test_the_factory_behind_the_line_of_an_mdp_is_the_one_in_the_suite():
    alike = {
        "simplex": linear.mdps.random_simplex(dimension=5, num_states=10, num_actions=4, horizon=5),
        "lock": linear.mdps.combination_lock(horizon=5, num_actions=3),
    }
    for name, mdp in alike.items():
        jax.tree.map(np.testing.assert_array_equal, linear.mdps.SUITE[name](), mdp)


@pytest.mark.parametrize(
    ("kind", "name", "paper"),
    [
        ("agents", "fg_ulmcdqn", catalogue.PAPER),
        ("agents", "steady_fg_ulmcdqn", None),
        ("agents", "bootstrapped_dqn", "Osband et al., 2016, 2018"),
        ("samplers", "mala", "Roberts and Tweedie, 1996"),
        ("samplers", "hmc", "Neal, 2011"),
        ("samplers", "underdamped_exact", f"{catalogue.PAPER}; Cheng et al., 2018"),
        ("samplers", "exact_gaussian", None),
        ("algorithms", "lsvi_ucb", "Jin et al., 2020"),
        ("algorithms", "ase_ulmc", catalogue.PAPER),
        ("mdps", "hypercube", "Zhou et al., 2021"),
        ("studies", "regret", catalogue.PAPER),
    ],
)
def test_papers_are_read_off_the_docstrings(kind, name, paper):
    assert {entry.name: entry.paper for entry in catalogue.KINDS[kind]()}[name] == paper


def test_an_entry_is_read_off_a_docstring():
    docstring = """Walks (Doe et al., 2001); twice.

    More of it, after Poe (1999).

    References:
      Roe and Van Roe (2002), "A walk in
      the park". Noe, Moe and Boe (2003), "Walks".

    Examples:
      >>> by_zoe = "Zoe (2004)"
    """
    papers = "Doe et al., 2001; Roe and Van Roe, 2002; Noe et al., 2003"
    assert catalogue._entry("walk", docstring) == ("walk", "Walks; twice", papers)
