"""Value-based agents: each a short composition of network, objective, sampler and exploration."""

from feelgood.agents.base import Agent, AgentState, check_values, strongly_typed, value_agent
from feelgood.agents.exploration import (
    Exploration,
    epsilon_greedy,
    greedy,
    one_draw_an_episode,
    one_member_an_episode,
)
from feelgood.agents.hyper import anneal, check_hyper, constant
from feelgood.agents.options import Options, Spaces
from feelgood.agents.recipes import ZOO, Recipe, atari_hyper, complete, control_hyper, make_agent
from feelgood.agents.tables import visit_rates
from feelgood.agents.wrappers import (
    bounded_rewards,
    fitted_bounds,
    mixed_horizons,
    one_chain_an_episode,
    own_reward_noise,
    restless,
    without_step_cost,
)

__all__ = [
    "ZOO",
    "Agent",
    "AgentState",
    "Exploration",
    "Options",
    "Recipe",
    "Spaces",
    "anneal",
    "atari_hyper",
    "bounded_rewards",
    "check_hyper",
    "check_values",
    "complete",
    "constant",
    "control_hyper",
    "epsilon_greedy",
    "fitted_bounds",
    "greedy",
    "make_agent",
    "mixed_horizons",
    "one_chain_an_episode",
    "one_draw_an_episode",
    "one_member_an_episode",
    "own_reward_noise",
    "restless",
    "strongly_typed",
    "value_agent",
    "visit_rates",
    "without_step_cost",
]
