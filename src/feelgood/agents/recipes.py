"""The zoo: every agent with its default hyper-parameters on functional environments, Gymnasium's and Atari."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from feelgood.agents import zoo
from feelgood.agents.base import Agent
from feelgood.agents.hyper import check_hyper
from feelgood.agents.options import Hyper, Options, Spaces
from feelgood.checks import check_choice


@dataclass(frozen=True)
class Recipe:
    """A member of the zoo.

    Attributes:
      make: `(spaces, hyper, options) -> Agent`.
      hyper: its hyper-parameters with their defaults in functional environments.
      options: its own values of the options that are None by default.
      config: overrides of the defaults of `feelgood.training.config.FunctionalConfig`.
      control: overrides of `hyper` in Gymnasium environments. Names in `_end` are final values; see `anneal`.
      control_config: overrides of the settings in `feelgood.protocols.CONTROL`.
      one_hot_config: further overrides, of `config` and `control_config`, if observations are one-hot.
      atari: overrides of `hyper` on Atari with pixels in [0, 1].
      raw: further overrides with pixels in [0, 255]; see `atari_hyper`.
    """

    make: Callable[[Spaces, Hyper, Options], Agent]
    hyper: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=lambda: {"hidden": (32, 32)})
    config: Mapping[str, float | int] = field(default_factory=lambda: {"replay_ratio": 1.0})
    control: Mapping[str, float] = field(default_factory=dict)
    control_config: Mapping[str, float | int] = field(default_factory=dict)
    one_hot_config: Mapping[str, float | int] = field(default_factory=dict)
    atari: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, float] = field(default_factory=dict)

    def functional_config(self, is_one_hot: bool) -> dict[str, float | int]:
        """`config`, and `one_hot_config` if observations are one-hot."""
        return {**self.config, **(self.one_hot_config if is_one_hot else {})}

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.make.__doc__ or "").splitlines()[0]


# J = 4 gradient steps per environment step in the paper's N-chain protocol, for the Langevin agents.
_LANGEVIN_CONFIG = {"replay_ratio": 4.0}
_ENSEMBLE_CONFIG = {"replay_ratio": 1.0, "batch_size": 64, "target_update_period": 8, "capacity": 100_000}
_ADAM = {"adam_epsilon": 1e-8}
_BIAS = {"bias_factor": 1.0, "bias_epsilon": 1e-8}
_EPSILON = {"initial_epsilon": 1.0, "final_epsilon": 0.01, "epsilon_fraction": 0.1}

# Gymnasium: the values of fg_ulmcdqn and dqn were chosen on tuning seeds of CartPole; ensemble_dqn has the same on
# functional environments; the others follow them and were not tuned. The temperature falls as data grow, as in a
# posterior. Noise at the start makes draws differ enough to explore; 1e10 gives too little. Step sizes fall to 0, so
# that the final policy is stable.
_ADAM_CONTROL = {"step_size": 2e-3, "step_size_end": 0.0}
_LANGEVIN_CONTROL = {"inverse_temperature": 1e3, "inverse_temperature_end": 1e5, "step_size_end": 0.0}
_OVERDAMPED_CONTROL = {"step_size": 2e-3, **_LANGEVIN_CONTROL}
_UNDERDAMPED_CONTROL = {"step_size": 2e-2, "friction": 10.0, **_LANGEVIN_CONTROL}
_FEEL_GOOD_CONTROL = {"feel_good_weight": 0.1, "feel_good_weight_end": 0.0}
_EPSILON_CONTROL = {"final_epsilon": 0.05, "epsilon_fraction": 0.2}

# Atari: see docs/atari-settings.md. The Langevin agents use the paper's table of swept values, with two exceptions. The
# bias's ε is that of DQN's Adam: with the released code's 1e-8, features die if rewards are rare, unless the form is
# "bounded", or it is "corrected" and the bias factor is a third. The underdamped agents' β is from the released
# configurations: the table's β gives almost no noise. The others use Adam as in their papers, or in place of RMSProp as
# Hessel et al. (2018) do; ε falls over the first million of 50 million frames.
_ADAM_ATARI = {"step_size": 6.25e-5, "adam_epsilon": 1.5e-4}
_BIAS_ATARI = {"bias_factor": 0.1, "bias_epsilon": 1.5e-4}
_OVERDAMPED_ATARI = {"step_size": 1e-3, "inverse_temperature": 1e16}
_UNDERDAMPED_ATARI = {"step_size": 1e-2, "inverse_temperature": 1e8, "friction": 10.0, **_BIAS_ATARI}
_FEEL_GOOD_ATARI = {"feel_good_weight": 1e-4}
_EPSILON_ATARI = {"final_epsilon": 0.01, "epsilon_fraction": 0.02}
# On raw pixels the loss has curvatures p up to 1e5: the underdamped scheme is stable for τ²p < 4 and, on minibatches,
# for τp/γ of order 10; the overdamped one for τp < 2.
_OVERDAMPED_RAW = {"step_size": 1e-4}
_UNDERDAMPED_RAW = {"step_size": 1e-3, "inverse_temperature": 1e16, "bias_epsilon": 1e-8}
_FEEL_GOOD_RAW = {"feel_good_weight": 1e-3}

# Defaults are the best points of the paper's grid on tuning seeds at N = 100; those of steady_fg_ulmcdqn come from a
# wider search; see docs/reproduction.md. prioritized_dqn and c51 have the best of three step sizes after 20,000 steps
# at N = 25, on six tuning seeds; iqn's step size is not tuned.
ZOO: dict[str, Recipe] = {
    "fg_ulmcdqn": Recipe(
        zoo.fg_ulmcdqn,
        {"step_size": 1e-3, "inverse_temperature": 1e10, **_BIAS, "friction": 0.1, "feel_good_weight": 0.1},
        config=_LANGEVIN_CONFIG,
        control={**_UNDERDAMPED_CONTROL, **_FEEL_GOOD_CONTROL},
        atari={**_UNDERDAMPED_ATARI, **_FEEL_GOOD_ATARI},
        raw={**_UNDERDAMPED_RAW, **_FEEL_GOOD_RAW},
    ),
    "steady_fg_ulmcdqn": Recipe(
        zoo.steady_fg_ulmcdqn,
        {
            "step_size": 1e-2,
            "step_size_end": 0.0,
            "inverse_temperature": 1e10,
            **_BIAS,
            "friction": 1.0,
            "feel_good_weight": 0.05,
            "feel_good_weight_end": 0.0,
            "average_decay": 0.997,
        },
        config=_LANGEVIN_CONFIG,
        control={**_UNDERDAMPED_CONTROL, **_FEEL_GOOD_CONTROL, "average_decay": 0.95},
        atari={**_UNDERDAMPED_ATARI, **_FEEL_GOOD_ATARI},
        raw={**_UNDERDAMPED_RAW, **_FEEL_GOOD_RAW},
    ),
    "fg_lmcdqn": Recipe(
        zoo.fg_lmcdqn,
        {"step_size": 1e-2, "inverse_temperature": 1e10, **_BIAS, "feel_good_weight": 0.1},
        config=_LANGEVIN_CONFIG,
        control={**_OVERDAMPED_CONTROL, **_FEEL_GOOD_CONTROL},
        atari={**_OVERDAMPED_ATARI, **_BIAS_ATARI, **_FEEL_GOOD_ATARI},
        raw={**_OVERDAMPED_RAW, "bias_epsilon": 1e-8, **_FEEL_GOOD_RAW},
    ),
    "ulmcdqn": Recipe(
        zoo.ulmcdqn,
        {"step_size": 1e-3, "inverse_temperature": 1e12, **_BIAS, "friction": 0.1},
        config=_LANGEVIN_CONFIG,
        control=_UNDERDAMPED_CONTROL,
        atari=_UNDERDAMPED_ATARI,
        raw=_UNDERDAMPED_RAW,
    ),
    "adam_lmcdqn": Recipe(
        zoo.adam_lmcdqn,
        {"step_size": 1e-2, "inverse_temperature": 1e8, **_BIAS},
        config=_LANGEVIN_CONFIG,
        control=_OVERDAMPED_CONTROL,
        atari={**_OVERDAMPED_ATARI, **_BIAS_ATARI},
        raw={**_OVERDAMPED_RAW, "bias_epsilon": 1e-8},
    ),
    "lmcdqn": Recipe(
        zoo.lmcdqn,
        {"step_size": 1e-3, "inverse_temperature": 1e8},
        config=_LANGEVIN_CONFIG,
        atari=_OVERDAMPED_ATARI,
        raw=_OVERDAMPED_RAW,
    ),
    "langevin_dqn": Recipe(
        zoo.langevin_dqn,
        {"step_size": 1e-2, "inverse_temperature": 1e10, **_ADAM},
        config=_LANGEVIN_CONFIG,
        atari={**_OVERDAMPED_ATARI, "step_size": 1e-4},
    ),
    "dqn": Recipe(
        zoo.dqn,
        {"step_size": 1e-2, **_ADAM, **_EPSILON},
        control={**_ADAM_CONTROL, "step_size": 4e-3, **_EPSILON_CONTROL},
        atari={**_ADAM_ATARI, **_EPSILON_ATARI},
    ),
    "prioritized_dqn": Recipe(
        zoo.prioritized_dqn,
        {"step_size": 1e-2, **_ADAM, **_EPSILON},
        control={**_ADAM_CONTROL, **_EPSILON_CONTROL},
        atari={**_ADAM_ATARI, **_EPSILON_ATARI},
    ),
    "c51": Recipe(
        zoo.c51,
        {"step_size": 1e-2, **_ADAM, **_EPSILON},
        control={**_ADAM_CONTROL, **_EPSILON_CONTROL},
        atari={"step_size": 2.5e-4, "adam_epsilon": 0.01 / 32, **_EPSILON_ATARI},
    ),
    "iqn": Recipe(
        zoo.iqn,
        {"step_size": 1e-3, **_ADAM, **_EPSILON},
        control={**_ADAM_CONTROL, **_EPSILON_CONTROL},
        atari={"step_size": 5e-5, "adam_epsilon": 0.01 / 32, **_EPSILON_ATARI},
    ),
    "bootstrapped_dqn": Recipe(
        zoo.bootstrapped_dqn,
        {"step_size": 1e-4, **_ADAM, **_EPSILON, "prior_scale": 1.0},
        options={"hidden": (32, 32), "num_members": 10},
        control={**_ADAM_CONTROL, **_EPSILON_CONTROL},
        atari={**_ADAM_ATARI, **_EPSILON_ATARI},
    ),
    "noisynet_dqn": Recipe(zoo.noisynet_dqn, {"step_size": 1e-2, **_ADAM}, control=_ADAM_CONTROL, atari=_ADAM_ATARI),
    "ensemble_dqn": Recipe(
        zoo.ensemble_dqn,
        {
            "step_size": 1e-3,
            "step_size_end": 0.0,
            **_ADAM,
            "prior_scale": 0.3,
            "table_rate": 0.3,
            "one_hot_scale": 0.1,
            "horizon_spread": 10.0,
            "action_gap": 0.2,
            "dither": 0.1,
            "perturbation": 0.0,
            "feel_good_weight": 0.0,
            "reward_floor": 1.0,
            "reward_floor_end": 0.0,
        },
        options={"hidden": (64, 64), "num_members": 20},
        config=_ENSEMBLE_CONFIG,
        control_config={**_ENSEMBLE_CONFIG, "learning_starts": 200},
        one_hot_config={"batch_size": 128},  # tables need large minibatches
        atari={**_ADAM_ATARI, "step_size_end": _ADAM_ATARI["step_size"], "feel_good_weight": 1e-4},
    ),
}


def control_hyper(name: str) -> dict[str, float]:
    """Hyper-parameters in Gymnasium environments other than Atari games.

    Examples:
      >>> control_hyper("dqn")["step_size"], control_hyper("dqn")["step_size_end"]
      (0.004, 0.0)
    """
    return {**ZOO[name].hyper, **ZOO[name].control}


def atari_hyper(name: str, pixel_scale: float, form: str = "released") -> dict[str, float]:
    """Hyper-parameters on Atari, where pixels, 0 to 255, are multiplied by `pixel_scale`.

    Raw pixels have their own settings: the loss is about ten thousand times steeper. Forms of the adaptive samplers
    (see `Options`) other than the released one use ε = 1e-8. The paper's form has ε under the root, where 1e-8 acts
    like 1e-4 outside it. With the corrected form, features survive this ε if the bias factor is a third; with the
    bounded form, they survive with the full bias factor.

    Examples:
      >>> atari_hyper("fg_lmcdqn", 1 / 255)["step_size"], atari_hyper("fg_lmcdqn", 1.0)["step_size"]
      (0.001, 0.0001)
    """
    recipe, is_raw = ZOO[name], pixel_scale > 0.1
    hyper = {**recipe.hyper, **recipe.atari, **(recipe.raw if is_raw else {})}
    if form != "released" and "bias_epsilon" in hyper:
        hyper["bias_epsilon"] = recipe.hyper["bias_epsilon"]
        if form == "corrected" and not is_raw:
            hyper["bias_factor"] = 0.03
    return hyper


def complete(name: str, options: Options) -> Options:
    """The options with the agent's own value of each that is None.

    Examples:
      >>> complete("ensemble_dqn", Options()).num_members, complete("ensemble_dqn", Options(num_members=3)).num_members
      (20, 3)
    """
    own = {option: value for option, value in ZOO[name].options.items() if getattr(options, option) is None}
    return replace(options, **own)


def make_agent(name: str, spaces: Spaces, hyper: Hyper | None = None, options: Options | None = None) -> Agent:
    """Builds an agent of the zoo; `hyper` overrides its default hyper-parameters.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import agents
      >>> agent, key = agents.make_agent("ensemble_dqn", agents.Spaces((4,), num_actions=2)), jax.random.key(0)
      >>> jax.eval_shape(lambda: agent.values(key, agent.init(key), jnp.zeros(4))).shape  # members, actions
      (20, 2)
    """
    check_choice("agent", name, ZOO)
    recipe = ZOO[name]
    for given in hyper or {}:
        check_choice(f"hyper-parameter of {name}", given, recipe.hyper)
    check_hyper(hyper or {})
    return recipe.make(spaces, {**recipe.hyper, **(hyper or {})}, complete(name, options or Options()))
