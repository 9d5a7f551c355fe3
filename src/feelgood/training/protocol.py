"""How a run on environments outside XLA goes."""

import math
from dataclasses import dataclass

from feelgood.checks import check_count, check_non_negative, check_probability

__all__ = ["HostProtocol", "most_groups"]


@dataclass(frozen=True)
class HostProtocol:
    """How a run goes; all static. The defaults are the paper's Atari protocol, in parallel environments.

    Attributes:
      num_steps: environment steps in all, of all environments together.
      num_envs: environments that step in parallel; the paper has 1.
      num_groups: groups of environments that take turns: while actions are chosen for one, the others step. It pays
        where environments step by themselves.
      num_warmup_steps: environment steps before the first update, counted in `num_steps`.
      steps_per_update: environment steps for `num_updates` gradient steps.
      num_updates: J, gradient steps for every `steps_per_update` environment steps.
      batch_size: transitions in a minibatch.
      capacity: of the replay, over all environments.
      n_step: steps that a return spans.
      discount: of future rewards.
      target_period: gradient steps between two copies to the target network.
      evaluation_period: environment steps between two evaluations; the last is at the end in any case.
      num_evaluation_episodes: episodes averaged in an evaluation.
      max_evaluation_steps: an evaluation episode is cut off after so many.
      priority_exponent: α of the replay of agents with priorities.
      importance_exponent: β at the start of a run of such an agent; it rises linearly to 1 at the end.
      num_stagger_turns: in the first so many steps of each environment it begins anew once, each at a time of its own,
        where environments can be reset one by one. Otherwise environments that are deterministic but for a few no-ops
        at the start would all play the same few episodes, for ever where episodes have one length.
      num_chains: independent chains, each moved by minibatches of its own and acting in its own share of the
        environments; they share one replay.
      num_draws: positions of each chain that act at the same time, at most one for each environment; one after the
        other gives its place to the chain's newest; until the first update they are draws from the prior. With 1 all
        environments follow the newest: they do nearly the same at any time, and what they do changes within an episode
        as fast as the chain moves.
      draw_steps: steps of its environments that each of them acts for, rounded down to a multiple of `num_draws`, but
        at least so many. The longer, the more of an episode comes from one draw, and the older are the draws.
    """

    num_steps: int = 12_500_000
    num_envs: int = 300
    num_groups: int = 3
    num_warmup_steps: int = 20_000
    steps_per_update: int = 10
    num_updates: int = 1
    batch_size: int = 32
    capacity: int = 1_000_000
    n_step: int = 3
    discount: float = 0.99
    target_period: int = 500
    evaluation_period: int = 100_000
    num_evaluation_episodes: int = 5
    max_evaluation_steps: int = 27_000
    num_stagger_turns: int = 500
    num_chains: int = 1
    num_draws: int = 50
    draw_steps: int = 50
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4

    def __post_init__(self):
        for name, value in vars(self).items():
            if type(getattr(HostProtocol, name)) is int:
                check_count(name, value)
        check_probability("discount", self.discount)
        check_non_negative("priority_exponent", self.priority_exponent)
        check_non_negative("importance_exponent", self.importance_exponent)
        if self.num_envs % (self.num_groups * self.num_chains):
            raise ValueError(
                f"num_envs must be a multiple of num_groups * num_chains = {self.num_groups} * {self.num_chains}, "
                f"got {self.num_envs}"
            )
        if self.evaluation_period < self.num_envs:
            raise ValueError(
                f"evaluation_period must be at least num_envs = {self.num_envs}, got {self.evaluation_period}"
            )
        if self.num_rows < 8 * self.num_groups:
            raise ValueError(
                f"capacity must be at least 8 steps of {self.num_envs} environments = {8 * self.num_envs}, "
                f"got {self.capacity}"
            )

    @property
    def num_lanes(self) -> int:
        """Environments of a group."""
        return self.num_envs // self.num_groups

    @property
    def num_rows(self) -> int:
        """Rows of the replay, one step of a group of environments each."""
        return self.capacity // self.num_envs * self.num_groups

    @property
    def turns_per_block(self) -> int:
        """Turns of the loop between two blocks of updates: the fewest that make it whole updates."""
        return self.steps_per_update // math.gcd(self.steps_per_update, self.num_lanes * self.num_updates)

    @property
    def updates_per_block(self) -> int:
        """Gradient steps in a block."""
        return self.turns_per_block * self.num_lanes * self.num_updates // self.steps_per_update

    @property
    def first_block(self) -> int:
        """Turns before the first block of updates: every group has stepped, and the warm-up is over."""
        fewest = max(self.num_groups + 1, -(-self.num_warmup_steps // self.num_lanes))
        return -(-fewest // self.turns_per_block) * self.turns_per_block

    @property
    def stretch(self) -> int:
        """Gradient steps between which the target stands still: neither a block's end nor a target copy cuts them."""
        return math.gcd(self.updates_per_block, self.target_period)


def most_groups(num_envs: int, num_chains: int = 1, at_most: int = HostProtocol.num_groups) -> int:
    """The most groups that so many environments can be dealt into, each chain having its share of every group.

    Example:
      >>> most_groups(300), most_groups(200), most_groups(300, num_chains=50), most_groups(1)
      (3, 2, 3, 1)
    """
    return next((n for n in range(at_most, 1, -1) if num_envs % (n * num_chains) == 0), 1)
