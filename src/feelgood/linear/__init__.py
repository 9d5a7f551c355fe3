"""Linear MDPs: exact planning, Algorithm 1, every row of the paper's Table 1, and the theory as running code.

Submodules: `mdps` (a suite of them), `schemes` (samplers that follow a stage's curvature), `algorithms` (all rows of
Table 1 by name), `table1` (the table itself, as data), `theory` (bounds), `errors` (sampling error, exact),
`complexity` (gradients for a given error).
"""

from feelgood.linear import algorithms, complexity, errors, mdps, schemes, table1, theory
from feelgood.linear.ase import SamplingFacts, ValueFunction, lsvi_ase, lsvi_ase_general
from feelgood.linear.cps import cps
from feelgood.linear.eleanor import eleanor
from feelgood.linear.learning import Curve, Data, Learner, Plan, learn, random_start, worst_start
from feelgood.linear.least_squares import lmc_lsvi, lsvi, lsvi_phe, lsvi_ucb, opt_rlsvi
from feelgood.linear.mdps import LinearMDP, from_tables, greedy_policy, linear_mdp, optimal_values, policy_values
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
    "algorithms",
    "complexity",
    "cps",
    "eleanor",
    "errors",
    "from_tables",
    "greedy_policy",
    "learn",
    "linear_mdp",
    "lmc_lsvi",
    "lsvi",
    "lsvi_ase",
    "lsvi_ase_general",
    "lsvi_phe",
    "lsvi_ucb",
    "mdps",
    "opt_rlsvi",
    "optimal_values",
    "policy_values",
    "random_start",
    "schemes",
    "table1",
    "theory",
    "worst_start",
]
