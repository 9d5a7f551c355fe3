"""The agent that `feelgood train` uses by default."""

from feelgood.cli.train import TrainOptions


def test_the_default_agent_is_the_ensemble_and_the_papers_agent_on_atari():
    assert TrainOptions(env="CartPole-v1").agent == "ensemble_dqn"
    assert TrainOptions(env="atari:venture").agent == "fg_ulmcdqn"
    assert TrainOptions(env="CartPole-v1", agent="dqn").agent == "dqn"
