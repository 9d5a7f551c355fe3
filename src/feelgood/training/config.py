"""Settings of a training run: fields that both loops share, and fields of one loop only."""

import math
from dataclasses import dataclass, fields
from fractions import Fraction

from feelgood.checks import check_count, check_multiple, check_non_negative, check_positive, check_probability

MOST_STEPS = 10**12
"""Largest number of environment steps of a run."""


@dataclass(frozen=True)
class TrainingConfig:
    """Settings that mean the same in both training loops; all static.

    Attributes:
      num_steps: environment steps in all, including those before learning starts.
      learning_starts: environment steps before the first gradient step.
      replay_ratio: gradient steps per environment step. It may be a fraction.
      capacity: transitions that the replay holds.
      n_step: steps that a return spans.
      target_update_period: gradient steps between two copies of the parameters to the target network.
      evaluation_period: environment steps between two evaluations.
      num_evaluation_episodes: episodes of an evaluation.
      batch_size: transitions in a minibatch.
      discount: discount factor of future rewards.
      recent_share: share of each minibatch that is drawn from the newest 1,000 transitions instead of the whole replay;
        agents with priorities ignore it.
      priority_exponent: α of prioritised sampling, for agents with priorities.
      importance_exponent: β of the importance weights at the start of such a run; it rises linearly to 1 at the end.
      num_chains: independent chains, each with its own minibatches; they share one replay. On functional environments
        one of them, drawn for the episode, acts; external environments are divided among them.
    """

    num_steps: int
    learning_starts: int
    replay_ratio: float
    capacity: int
    n_step: int
    target_update_period: int
    evaluation_period: int
    num_evaluation_episodes: int
    batch_size: int = 32
    discount: float = 0.99
    recent_share: float = 0.0
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4
    num_chains: int = 1

    def __post_init__(self):
        for field in fields(self):
            if field.type is int or field.type == "int":
                check_count(field.name, getattr(self, field.name), minimum=0 if field.name == "learning_starts" else 1)
        check_count("num_steps", self.num_steps, maximum=MOST_STEPS)
        for name in ("capacity", "batch_size"):
            check_count(name, getattr(self, name), maximum=2**31 - 1)  # indices have 32 bits
        check_positive("replay_ratio", self.replay_ratio)
        for name in ("discount", "recent_share"):
            check_probability(name, getattr(self, name))
        for name in ("priority_exponent", "importance_exponent"):
            check_non_negative(name, getattr(self, name))

    @property
    def train_frequency(self) -> int:
        """Environment steps between two blocks of gradient steps."""
        raise NotImplementedError

    @property
    def updates_per_block(self) -> int:
        """Gradient steps in a block, train_frequency · replay_ratio."""
        return int(self.train_frequency * self._ratio)

    @property
    def _ratio(self) -> Fraction:
        """The replay ratio as an exact fraction: 0.1 is 1/10."""
        return Fraction(self.replay_ratio).limit_denominator(1_000_000)


@dataclass(frozen=True)
class FunctionalConfig(TrainingConfig):
    """Settings of a run on a functional environment. The defaults are the released N-chain protocol.

    An evaluation plays one episode if neither the agent nor the environment draws random numbers (`Spec.is_random`).

    Attributes:
      train_frequency: environment steps between two blocks of gradient steps. The acting parameters are constant in
        between, so a value equal to the length of an episode makes the agent follow one draw for a whole episode.
      success_return: return from which an episode counts as a success.
    """

    num_steps: int = 100_000
    learning_starts: int = 32
    replay_ratio: float = 4.0
    capacity: int = 10_000
    n_step: int = 1
    target_update_period: int = 100
    evaluation_period: int = 1_000
    num_evaluation_episodes: int = 20
    train_frequency: int = 10
    success_return: float = math.inf

    def __post_init__(self):
        super().__post_init__()
        if (self.train_frequency * self._ratio).denominator != 1:
            got = f"got {self.replay_ratio} · {self.train_frequency}"
            raise ValueError(f"replay_ratio times train_frequency must be a whole number of gradient steps, {got}")
        check_multiple("evaluation_period", self.evaluation_period, "train_frequency", self.train_frequency)
        check_multiple("num_steps", self.num_steps, "evaluation_period", self.evaluation_period)
        if self.updates_per_block == 0:
            least = f"1/train_frequency = 1/{self.train_frequency}"
            raise ValueError(f"replay_ratio must be at least {least}, got {self.replay_ratio}")

    @property
    def num_chunks(self) -> int:
        """Evaluation periods in a run."""
        return self.num_steps // self.evaluation_period

    @property
    def first_block(self) -> int:
        """Index of the first block that learns: at least `learning_starts` steps have been taken by its end."""
        return max(-(-self.learning_starts // self.train_frequency) - 1, 0)


@dataclass(frozen=True)
class ExternalConfig(TrainingConfig):
    """Settings of a run on external environments. The defaults are the paper's Atari protocol, run in parallel.

    Steps count over all environments together. The last evaluation is at the end of the run in any case.

    Attributes:
      num_envs: environments that step in parallel; the paper has 1.
      num_groups: groups of environments that take turns: while the device chooses actions for one group, the others
        step. Several groups pay off if environments step outside the Python process or thread, as Atari games do.
      max_evaluation_steps: evaluation episodes are cut off after this number of steps.
      num_stagger_turns: each environment is reset once at its own step within its first `num_stagger_turns` steps, so
        that environments do not run in lockstep. This needs environments that can be reset one by one.
      num_draws: positions of each chain that act at the same time, at most one for each environment. The oldest acting
        draw is replaced by the chain's current parameters; before the first gradient step the draws come from the
        prior. With 1, all environments follow the current parameters: they behave nearly alike, and their behaviour
        changes within an episode as fast as the chain moves.
      draw_steps: steps for which each draw acts, rounded down to a multiple of `num_draws` but at least `num_draws`.
        With a larger value more of an episode comes from one draw, and the draws are older.
    """

    num_steps: int = 12_500_000
    learning_starts: int = 20_000
    replay_ratio: float = 0.1
    capacity: int = 1_000_000
    n_step: int = 3
    target_update_period: int = 500
    evaluation_period: int = 100_000
    num_evaluation_episodes: int = 5
    num_envs: int = 300
    num_groups: int = 3
    max_evaluation_steps: int = 27_000
    num_stagger_turns: int = 500
    num_draws: int = 50
    draw_steps: int = 50

    def __post_init__(self):
        super().__post_init__()
        if float(self._ratio) != self.replay_ratio:
            allowed = "a fraction of whole numbers below a million, such as 0.1"
            raise ValueError(f"replay_ratio must be {allowed}, got {self.replay_ratio}")
        parts = f"num_groups * num_chains = {self.num_groups} * {self.num_chains}"
        if self.num_envs % (self.num_groups * self.num_chains):
            raise ValueError(f"num_envs must be a multiple of {parts}, got {self.num_envs}")
        if self.evaluation_period < self.num_envs:
            least = f"num_envs = {self.num_envs}"
            raise ValueError(f"evaluation_period must be at least {least}, got {self.evaluation_period}")
        if self.num_rows < 8 * self.num_groups:
            least = f"8 steps of {self.num_envs} environments = {8 * self.num_envs}"
            raise ValueError(f"capacity must be at least {least}, got {self.capacity}")

    @property
    def num_lanes(self) -> int:
        """Environments of a group."""
        return self.num_envs // self.num_groups

    @property
    def num_rows(self) -> int:
        """Rows of the replay; each holds one step of a group of environments."""
        return self.capacity // self.num_envs * self.num_groups

    @property
    def turns_per_block(self) -> int:
        """Turns of the loop between two blocks: the fewest that give a whole number of gradient steps."""
        return (self.num_lanes * self._ratio).denominator

    @property
    def train_frequency(self) -> int:
        """Environment steps between two blocks of gradient steps."""
        return self.turns_per_block * self.num_lanes

    @property
    def first_block(self) -> int:
        """Turns before the first block: every group has stepped, and `learning_starts` steps have been taken."""
        fewest = max(self.num_groups + 1, -(-self.learning_starts // self.num_lanes))
        return -(-fewest // self.turns_per_block) * self.turns_per_block


def most_groups(num_envs: int, num_chains: int = 1, at_most: int = ExternalConfig.num_groups) -> int:
    """The largest number of groups, up to `at_most`, into which environments and chains divide evenly.

    Examples:
      >>> most_groups(300), most_groups(200), most_groups(300, num_chains=50), most_groups(1)
      (3, 2, 3, 1)
    """
    return next((n for n in range(at_most, 1, -1) if num_envs % (n * num_chains) == 0), 1)
