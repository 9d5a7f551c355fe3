"""Linear MDPs: exact planning, Algorithm 1, every row of the paper's Table 1, and the theory as running code."""

from feelgood.linear import mdps, schemes
from feelgood.linear.ase import SamplingFacts, ValueFunction, lsvi_ase, lsvi_ase_general
from feelgood.linear.learning import Curve, Data, Learner, Plan, learn, random_start, worst_start
from feelgood.linear.mdps import LinearMDP, greedy, linear_mdp, optimal_values, policy_values
from feelgood.linear.schemes import Scheme, Stage

__all__ = [
    "Curve",
    "Data",
    "Learner",
    "LinearMDP",
    "Plan",
    "SamplingFacts",
    "Scheme",
    "Stage",
    "ValueFunction",
    "greedy",
    "learn",
    "linear_mdp",
    "lsvi_ase",
    "lsvi_ase_general",
    "mdps",
    "optimal_values",
    "policy_values",
    "random_start",
    "schemes",
    "worst_start",
]
