"""Studies: experiments as data, and the engines that run them. Importing this package loads none of them."""

from typing import NamedTuple


class Study(NamedTuple):
    """A study: its module, the class of its options there, a title, a one-line summary, and options for an example."""

    module: str
    options: str
    title: str
    summary: str
    example: str


def _study(place: str, *texts: str) -> Study:
    module, _, options = place.rpartition(".")
    return Study(f"feelgood.studies.{module}", options, *texts)


STUDIES = {
    "nchain": _study(
        "nchain.study.NChainStudy",
        "Deep exploration on the N-chain",
        "deep exploration on the N-chain, after the paper's Figure 1",
        "--lengths 25 50 --agents fg_ulmcdqn dqn --num-seeds 10",
    ),
    "sensitivity": _study(
        "sensitivity.SensitivityStudy",
        "Sensitivity on the N-chain",
        "score on the N-chain against feel-good weight and friction",
        "--agents fg_ulmcdqn --length 25",
    ),
    "frontier": _study(
        "frontier.FrontierStudy",
        "The frontier of the N-chain",
        "the longest N-chain that each agent solves, at two budgets",
        "--agents fg_ulmcdqn dqn --lengths 25 50 100 --budgets fixed",
    ),
    "deepsea": _study(
        "deepsea.study.DeepSeaStudy",
        "Deep exploration in DeepSea",
        "episodes to solve bsuite's DeepSea against its size, next to published results",
        "--sizes 10 14 20 --agents ensemble_dqn dqn --num-seeds 10",
    ),
    "bsuite": _study(
        "bsuite.study.BsuiteStudy",
        "bsuite",
        "bsuite's scores on seven of its experiments, on exploration and basic ones",
        "--ids catch bandit/0 deep_sea/5 --agents ensemble_dqn dqn --num-episodes 1000",
    ),
    "sweep": _study(
        "sweep.SweepStudy",
        "A sweep",
        "a grid search for one agent; the winner is measured on fresh seeds",
        "--agent dqn --grid step_size=1e-2,1e-3",
    ),
    "regret": _study(
        "regret.study.RegretStudy",
        "Regret in linear MDPs",
        "measured regret in linear MDPs for every row of the paper's Table 1",
        "--mdps riverswim lock --algorithms lsvi_ucb ase_ulmc --num-episodes 500",
    ),
    "bandits": _study(
        "bandits.study.BanditsStudy",
        "Contextual bandits",
        "regret of contextual bandit algorithms, with exact and approximate draws",
        "--problems linear-20d --algorithms lin_ts fgts lmc_ts --num-rounds 2000",
    ),
    "samplers": _study(
        "samplers.study.SamplersStudy",
        "Samplers on a feel-good posterior",
        "every sampler on one 2-D feel-good posterior, as a figure (a minute)",
        "--num-chains 500 --output runs/drawn",
    ),
    "atari": _study(
        "atari.study.AtariStudy",
        "Atari",
        "eight hard Atari games, compared with the paper's scores and published curves",
        "--preset paper --games venture --agents fg_ulmcdqn ulmcdqn --num-frames 10000000 --num-seeds 3",
    ),
}
