"""Policies: against the network written out in NumPy, games played by hand, and files that were tampered with."""

import dataclasses
import hashlib
import io
import json
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image

from feelgood.agents import ZOO, Options
from feelgood.envs.conversion import as_external
from feelgood.envs.external import gym_environment, vector_environment
from feelgood.training.acting import policy_of, spaces_of
from feelgood.training.policy import Origin, Policy, make_environment, zoo_agent
from feelgood.training.policy_files import find_policy, load_policy, save_policy

LENGTH = 6


class Line(gymnasium.Env):
    """A point on a line that starts at random; action a moves it by a − 1 and pays its place and the action."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, render_mode=None, scale=1.0):
        self.render_mode, self.scale = render_mode, scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = float(self.np_random.integers(-2, 3)), 0
        return self.seen(), {}

    def seen(self):
        return np.float32([self.place, self.time])

    def step(self, action):
        self.place, self.time = self.place + float(action) - 1, self.time + 1
        return self.seen(), self.scale * (self.place + 0.1 * action), self.time == LENGTH, False, {}

    def render(self):
        return np.full((4, 5, 3), 20 * (self.time + 1), np.uint8)


gymnasium.register("feelgood-tests/Line-v0", Line)


class Images(gymnasium.Env):
    """Shows a grey image, brighter from step to step; has no rendering."""

    observation_space = gymnasium.spaces.Box(0, 255, (100, 50), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros((100, 50), np.uint8), {}

    def step(self, action):
        self.time += 1
        return np.full((100, 50), 40 * self.time, np.uint8), 1.0, self.time == 4, False, {}


def own(env):
    """An environment that only this file can make."""
    make = lambda n, training: SyncVectorEnv([env] * n, autoreset_mode=AutoresetMode.NEXT_STEP)
    return vector_environment(make, env.__name__)


def untrained(agent="dqn", environment=None, origin=None, seeds=(0,), hidden=(4,)):
    """A policy of random weights, scaled so that its choices depend on the observation; a chain for each seed."""
    origin = origin or Origin("gym", "feelgood-tests/Line-v0")
    environment, options = environment or make_environment(origin), Options(hidden=hidden, num_members=3)
    make = zoo_agent(agent, options)
    one = make(spaces_of(environment), ZOO[agent].hyper)
    states = [policy_of(one.init(jax.random.key(seed))) for seed in seeds]
    states = [jax.tree.map(lambda leaf: 3 * leaf, state) for state in states]
    state = states[0] if len(seeds) == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    return Policy(environment, make, ZOO[agent].hyper, state, agent, origin, options, len(seeds))


def values(state, observation):
    """The action values of an MLP, written out."""
    x = np.asarray(observation, np.float64)
    *hidden, last = state.sampler.params.layers
    for layer in hidden:
        x = np.maximum(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64), 0)
    return x @ np.asarray(last.weight, np.float64) + np.asarray(last.bias, np.float64)


def greedy(state, observation):
    """The action of such a network."""
    return np.argmax(values(state, observation), -1)


def played(act, places):
    """Returns of `Line` by hand, from each starting place."""
    returns = []
    for place in places:
        total = 0.0
        for time in range(LENGTH):
            action = act(np.float32([place, time]))
            place += action - 1
            total += place + 0.1 * action
        returns.append(total)
    return np.array(returns)


@pytest.fixture(scope="module")
def policy():
    return untrained()


@pytest.fixture
def folder(tmp_path, policy):
    save_policy(tmp_path / "kept", policy)
    return tmp_path / "kept"


def test_a_policy_takes_the_best_action_of_its_network_one_by_one_and_in_a_batch(policy):
    observations = np.random.default_rng(0).uniform(-4, 4, (40, 2)).astype(np.float32)
    expected = greedy(policy.state, observations)
    assert len({*expected}) > 1
    np.testing.assert_array_equal(policy(observations), expected)
    assert policy(observations[3]).shape == ()
    assert [int(policy(each)) for each in observations[:5]] == expected[:5].tolist()
    with pytest.raises(ValueError, match=r"observation must have shape \(2,\), or a batch of them, got shape \(3,\)"):
        policy(np.zeros(3))
    with pytest.raises(ValueError, match="got shape"):
        policy(np.zeros((2, 2, 2)))


def test_infinite_bounds_of_observations_are_no_divergence(policy):
    frozen = {"bound": jnp.array([4.8, jnp.inf])}  # as CartPole's, whose velocities have no bound
    assert dataclasses.replace(policy, state=policy.state._replace(frozen=frozen)).is_finite
    lost = jax.tree.map(lambda leaf: leaf + jnp.inf, policy.state.sampler)
    assert not dataclasses.replace(policy, state=policy.state._replace(sampler=lost)).is_finite


def test_the_values_of_a_policy_are_those_of_its_network_of_each_chain_and_of_each_member(policy):
    observations = np.random.default_rng(0).uniform(-4, 4, (7, 2)).astype(np.float32)
    np.testing.assert_allclose(policy.values(observations), values(policy.state, observations), rtol=1e-4)
    np.testing.assert_allclose(policy.values(observations[2]), policy.values(observations)[2], rtol=1e-5)
    chains = untrained(seeds=(0, 1))
    assert chains.values(observations).shape == (7, 2, 3)
    np.testing.assert_allclose(chains.values(observations)[:, 0], policy.values(observations), rtol=1e-5)
    assert untrained("bootstrapped_dqn").values(observations).shape == (7, 3, 3)
    # Quantiles are drawn again for each seed, and the policy acts on their mean.
    quantiles = untrained("iqn")
    assert quantiles.values(observations).shape == (7, 3)
    assert not np.allclose(quantiles.values(observations), quantiles.values(observations, seed=1))
    blind = Policy(
        policy.environment, lambda *given: policy.make_agent(*given)._replace(values=None), policy.hyper, policy.state
    )
    with pytest.raises(ValueError, match="this policy has no action values"):
        blind.values(observations)


def test_an_evaluation_equals_the_return_of_a_manual_loop(policy):
    possible = played(lambda seen: greedy(policy.state, seen), range(-2, 3))
    returns = policy.evaluate(30, seed=1)
    assert returns.shape == (30,)
    gaps = np.abs(returns[:, None] - possible)
    assert np.all(gaps.min(1) < 1e-5)
    assert len({*gaps.argmin(1)}) == 5
    np.testing.assert_array_equal(policy.evaluate(30, seed=1), returns)
    assert not np.array_equal(policy.evaluate(30, seed=2), returns)
    # One step from any place pays the place arrived at, and a tenth of the action.
    first = [place + greedy(policy.state, [place, 0]) * 1.1 - 1 for place in range(-2, 3)]
    assert np.all(np.abs(policy.evaluate(10, max_steps=1)[:, None] - first).min(1) < 1e-5)


def test_lanes_follow_the_chains_in_turn():
    several = untrained(seeds=(0, 1))
    alone = [untrained(seeds=(seed,)) for seed in (0, 1)]
    observations = np.random.default_rng(0).uniform(-4, 4, (9, 2)).astype(np.float32)
    choices = np.array([greedy(each.state, observations) for each in alone])
    assert np.any(choices[0] != choices[1])
    np.testing.assert_array_equal(several(observations), choices[np.arange(9) % 2, np.arange(9)])


def test_a_member_of_an_ensemble_is_drawn_by_the_seed():
    policy = untrained("bootstrapped_dqn", hidden=(3,))
    observations = np.random.default_rng(0).uniform(-4, 4, (20, 2)).astype(np.float32)
    chosen = [policy(observations, seed=seed).tolist() for seed in (0, 1, 0)]
    assert chosen[0] == chosen[2] != chosen[1]


def test_a_saved_policy_is_restored(policy, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["policy.json", "policy.npz"]
    loaded = load_policy(folder)
    assert (loaded.agent, loaded.origin, loaded.options) == ("dqn", policy.origin, policy.options)
    assert loaded.hyper == policy.hyper
    assert jax.tree.structure(loaded.state) == jax.tree.structure(policy.state)
    jax.tree.map(np.testing.assert_array_equal, loaded.state, policy.state)
    np.testing.assert_array_equal(loaded.evaluate(4), policy.evaluate(4))
    about = json.loads((folder / "policy.json").read_text())
    assert about["versions"]["gymnasium"] == gymnasium.__version__
    with np.load(folder / "policy.npz") as arrays:
        first = policy.state.sampler.params.layers[0].weight
        np.testing.assert_array_equal(arrays["sampler/params/layers/0/weight"], first)


def test_chains_and_settings_of_the_task_come_back(tmp_path):
    origin = Origin("gym", "feelgood-tests/Line-v0", {"scale": 2.0})
    save_policy(tmp_path, untrained(origin=origin, seeds=(0, 1)))
    loaded = load_policy(tmp_path)
    assert loaded.num_chains == 2
    assert loaded.origin == origin
    plain = untrained(seeds=(0, 1))
    np.testing.assert_allclose(loaded.evaluate(6), 2 * plain.evaluate(6), rtol=1e-6)


def test_a_policy_is_found_in_its_run(tmp_path, policy):
    with pytest.raises(ValueError, match="holds no policy: there is no such folder"):
        find_policy(tmp_path / "none")
    with pytest.raises(ValueError, match=r"holds no policy: it has no policy\.json"):
        find_policy(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"study": "train", "spec": {}, "finished": False}))
    with pytest.raises(
        ValueError, match=r"holds no policy yet: its run is unfinished \(continue it with feelgood resume"
    ):
        find_policy(tmp_path)
    save_policy(tmp_path / "policy" / "seed-1", policy)
    assert find_policy(tmp_path) == tmp_path / "policy" / "seed-1"
    save_policy(tmp_path / "policy" / "seed-2", policy)
    with pytest.raises(ValueError, match=r"holds several policies; choose one of .*seed-1, .*seed-2"):
        find_policy(tmp_path)
    save_policy(tmp_path / "policy", policy)
    assert find_policy(tmp_path) == find_policy(tmp_path / "policy") == tmp_path / "policy"


def tamper(folder, **changes):
    about = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**about, **changes}))


ELSEWHERE = {"environment": {"kind": "gym", "name": "Line-v7", "settings": {}}}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Line-v7", {}, "env 'Line-v7' cannot be made"),
        ("no_such:X-v0", {}, "whose module would be imported; pass environment, or allow_import=True"),
        ("CartPole-v1", {"wheels": 3}, "wheels"),
    ],
)
def test_a_policy_acts_without_its_environment_and_names_it_when_it_has_to_play(folder, name, settings, message):
    whole = load_policy(folder)
    tamper(folder, environment={"kind": "gym", "name": name, "settings": settings})
    found, seen = load_policy(folder), np.linspace(-1, 1, 8).reshape(4, 2)
    np.testing.assert_array_equal(found(seen), whole(seen))
    for play in (lambda: found.evaluate(2), lambda: found.record("film.gif")):
        with pytest.raises(ValueError, match=re.escape(message)):
            play()


def test_a_policy_takes_observations_of_spaces_that_are_flattened(tmp_path):
    class Parts(Line):
        observation_space = gymnasium.spaces.Dict(
            {"place": gymnasium.spaces.Box(-9, 9, (1,), np.float32), "kind": gymnasium.spaces.Discrete(2)}
        )

        def seen(self):
            return {"place": np.float32([self.place]), "kind": self.time % 2}

    environment = as_external(Parts)
    found = untrained(environment=environment)
    seen = {"place": np.float32([1.5]), "kind": 1}
    flat = gymnasium.spaces.flatten(Parts.observation_space, seen)
    np.testing.assert_array_equal(found.values(seen), found.values(flat))
    assert found(seen) == found(flat)
    with pytest.raises(ValueError, match=r"observation must be an array, got .*gymnasium.spaces.flatten"):
        found({"place": seen["place"]})


def test_a_policy_of_a_run_without_schedules_is_read(tmp_path):
    policy = untrained("steady_fg_ulmcdqn")
    save_policy(tmp_path, policy)
    hyper = {name: value for name, value in ZOO["steady_fg_ulmcdqn"].hyper.items() if not name.endswith("_end")}
    assert len(hyper) == len(ZOO["steady_fg_ulmcdqn"].hyper) - 2
    tamper(tmp_path, hyper=hyper)
    seen = np.linspace(-1, 1, 8).reshape(4, 2)
    np.testing.assert_array_equal(load_policy(tmp_path).values(seen), policy.values(seen))


def test_a_policy_from_before_a_hyper_parameter_that_acting_does_not_use_is_read(tmp_path):
    policy = untrained("ensemble_dqn")
    save_policy(tmp_path, policy)
    hyper = {name: value for name, value in policy.hyper.items() if not name.startswith("reward_floor")}
    assert len(hyper) < len(policy.hyper)
    tamper(tmp_path, hyper=hyper)
    seen = np.linspace(-1, 1, 8).reshape(4, 2)
    np.testing.assert_array_equal(load_policy(tmp_path).values(seen), policy.values(seen))


def test_a_policy_reads_whole_numbers_as_one_hot_vectors_also_without_its_environment(tmp_path):
    policy = untrained(origin=Origin("gym", "FrozenLake-v1"))
    expected = values(policy.state, np.eye(16))
    assert expected.std(0).min() > 0.01  # states differ
    save_policy(tmp_path, policy)
    tamper(tmp_path, **ELSEWHERE)
    for found in (policy, load_policy(tmp_path)):
        np.testing.assert_allclose(found.values(np.arange(16)), expected, rtol=1e-4, atol=1e-4)
        assert int(found(3)) == np.argmax(expected[3])
        with pytest.raises(
            ValueError, match=r"observation must be a whole number from 0 to 15, or a batch of them, got \[1.0, 0.0\]"
        ):
            found(np.eye(2)[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2, this version of feelgood reads 1"),
        ({"agent": "dnq"}, "did you mean 'dqn'?"),
        ({"agent": None}, "must hold a str as 'agent', got None"),
        ({"hyper": {"step_size": "fast"}}, "a value in policy.json is not valid"),
        ({"hyper": {"step_size": 0.1}}, "does not fit agent 'dqn': it lacks adam_epsilon"),
        ({"options": {"hidden": [4], "wide": True}}, "wide"),
        ({"options": {"hidden": 4}}, "a value in policy.json is not valid"),
        ({"options": {"hidden": [5]}}, "expected float32(2, 5)"),
        ({"options": {"hidden": [4, 4]}}, "does not fit its agent: arrays differ, such as sampler/params/layers/2"),
        ({"environment": {"kind": "gym"}}, "a value in policy.json is not valid"),
        (
            {"environment": {"kind": "shell", "name": "x", "settings": {}}},
            "kind of environment must be one of 'gym', 'atari'",
        ),
        ({"environment": {"kind": "gym", "name": "CartPole-v1", "settings": {}}}, "expected float32(4, 4)"),
        (
            {"frames": {"shape": [2], "dtype": "float33", "num_actions": 2, "bound": [1, 1]}, **ELSEWHERE},
            "value in policy.json is not valid",
        ),
        (
            {"frames": {"shape": [-2], "dtype": "float32", "num_actions": 2, "bound": []}, **ELSEWHERE},
            "value in policy.json is not valid",
        ),
        (
            {
                "frames": {"shape": [], "dtype": "int32", "num_actions": 2, "bound": [1], "one_hot_shape": [0]},
                **ELSEWHERE,
            },
            "value in policy.json is not valid",
        ),
        ({"frames": None, **ELSEWHERE}, "env 'Line-v7' cannot be made"),
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1, got 0"),
    ],
)
def test_a_description_that_does_not_fit_gives_one_sentence(folder, changes, message):
    tamper(folder, **changes)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)


def test_policies_of_earlier_versions_still_load(folder):
    path = folder / "policy.json"
    about = json.loads(path.read_text())
    wanted = load_policy(folder)
    about["task"] = about.pop("environment")
    about["hyper"]["average"] = 0.5
    path.write_text(json.dumps(about))
    found = load_policy(folder)
    assert found.origin == wanted.origin
    assert found.hyper == {**wanted.hyper, "average_decay": 0.5}


class Bomb:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def test_damaged_arrays_give_one_sentence_and_no_code_is_run(folder):
    whole = (folder / "policy.npz").read_bytes()
    hostile = io.BytesIO()
    np.savez(hostile, **{"sampler/params/layers/0/weight": np.array([Bomb()], object)})
    for data in (whole[:-40], b"", whole[:100] + b"x" + whole[101:], hostile.getvalue()):
        (folder / "policy.npz").write_bytes(data)
        with pytest.raises(ValueError, match=r"cannot be read: policy\.npz does not match policy\.json"):
            load_policy(folder)
        tamper(folder, arrays=hashlib.sha256(data).hexdigest())
        with pytest.raises(ValueError, match=r"policy .* (cannot be read|does not fit)"):
            load_policy(folder)
    (folder / "policy.npz").unlink()
    with pytest.raises(ValueError, match=r"cannot be read: .*No such file"):
        load_policy(folder)
    (folder / "policy.json").write_text("{")
    with pytest.raises(ValueError, match=r"policy\.json cannot be read"):
        load_policy(folder)


def test_arrays_that_would_inflate_are_refused_before_they_do(folder):
    with np.load(folder / "policy.npz") as file:
        arrays = {name: file[name] for name in file.files}
    large = {**arrays, "sampler/params/layers/0/weight": np.zeros((3000, 3000), np.float32)}
    for write, found, why in (
        (np.savez_compressed, arrays, "is compressed"),
        (np.savez_compressed, large, "is compressed"),
        (np.savez, large, "is larger than the array"),
    ):
        data = io.BytesIO()
        write(data, **found)
        (folder / "policy.npz").write_bytes(data.getvalue())
        tamper(folder, arrays=hashlib.sha256(data.getvalue()).hexdigest())
        with pytest.raises(ValueError, match=why):
            load_policy(folder)


def test_the_module_of_an_environment_is_imported_only_if_that_is_allowed(folder, tmp_path, monkeypatch):
    (tmp_path / "payload_of_a_policy.py").write_text("raise SystemExit('code was run')")
    monkeypatch.syspath_prepend(tmp_path)
    tamper(folder, environment={"kind": "gym", "name": "payload_of_a_policy:X-v0", "settings": {}})
    found = load_policy(folder)
    for play in (lambda: found.evaluate(1), lambda: found.record(tmp_path / "film.gif")):
        with pytest.raises(ValueError, match="whose module would be imported"):
            play()
    with pytest.raises(SystemExit, match="code was run"):
        load_policy(folder, allow_import=True)


def test_own_functions_must_be_passed_again(tmp_path, policy):
    environment = own(Line)
    mine = Policy(environment, policy.make_agent, policy.hyper, policy.state, origin=Origin("own", "Line"))
    save_policy(tmp_path, mine)
    with pytest.raises(ValueError, match="needs your own agent; pass make_agent to load_policy"):
        load_policy(tmp_path)
    with pytest.raises(ValueError, match="needs your own environment; pass environment to load_policy"):
        load_policy(tmp_path, make_agent=policy.make_agent).evaluate(1)
    loaded = load_policy(tmp_path, make_agent=policy.make_agent, environment=environment)
    np.testing.assert_array_equal(loaded.evaluate(3), policy.evaluate(3))


def test_settings_that_cannot_be_written_down_are_named(tmp_path, policy):
    odd = Origin("gym", "feelgood-tests/Line-v0", {"scale": 1j})
    mine = Policy(policy.environment, policy.make_agent, policy.hyper, policy.state, "dqn", odd)
    with pytest.raises(ValueError, match="settings of env 'feelgood-tests/Line-v0' cannot be stored"):
        save_policy(tmp_path / "new", mine)
    assert not (tmp_path / "new").exists()


def frames_of(path):
    film = Image.open(path)
    assert film.format == "GIF"
    found = []
    for i in range(film.n_frames):
        film.seek(i)
        found.append((film.size, film.info["duration"], np.asarray(film.convert("RGB"))))
    return found


def test_a_film_shows_rendered_frames_and_reports_the_return(tmp_path, policy):
    earned = policy.record(tmp_path / "new" / "line.gif", seed=3, frames_per_second=20)
    frames = frames_of(tmp_path / "new" / "line.gif")
    assert [(size, duration) for size, duration, _ in frames] == [((5, 4), 50)] * (LENGTH + 1)
    for time, (_, _, pixels) in enumerate(frames):
        assert np.all(np.abs(pixels.astype(int) - 20 * (time + 1)) <= 4)
    assert np.abs(played(lambda seen: greedy(policy.state, seen), range(-2, 3)) - earned).min() < 1e-5
    twice = untrained(origin=Origin("gym", "feelgood-tests/Line-v0", {"scale": 2.0}))
    assert twice.record(tmp_path / "twice.gif", seed=3) == pytest.approx(2 * earned)
    policy.record(tmp_path / "short.gif", max_steps=2)
    assert len(frames_of(tmp_path / "short.gif")) == 3


def test_a_film_of_image_observations_shows_them_enlarged(tmp_path):
    policy = untrained(environment=own(Images), origin=Origin("own", "Images"))
    assert policy.record(tmp_path / "grey.gif") == 4
    frames = frames_of(tmp_path / "grey.gif")
    assert [size for size, _, _ in frames] == [(150, 300)] * 5
    assert [round(pixels.mean() / 40) for _, _, pixels in frames] == [0, 1, 2, 3, 4]
    policy.record(tmp_path / "short.gif", every=2, frames_per_second=20)
    shown = [(round(pixels.mean() / 40), duration) for _, duration, pixels in frames_of(tmp_path / "short.gif")]
    assert shown == [(0, 100), (2, 100), (4, 100)]
    with pytest.raises(ValueError, match="every must be a whole number of at least 1, got 0"):
        policy.record(tmp_path / "short.gif", every=0)


def test_an_environment_without_images_cannot_be_recorded(tmp_path, policy):
    blind = untrained(environment=own(Line), origin=Origin("own", "Line"))
    with pytest.raises(ValueError, match="env 'Line' cannot be recorded: it has no render_mode 'rgb_array' and its"):
        blind.record(tmp_path / "line.gif")
    for modes, problem in (([], "it has no render_mode 'rgb_array'"), (["rgb_array"], "its render is not implemented")):
        dark = type("Dark", (Line,), {"metadata": {"render_modes": modes}, "render": gymnasium.Env.render})
        gymnasium.register(f"feelgood-tests/Dark{len(modes)}-v0", dark)
        named = untrained(origin=Origin("gym", f"feelgood-tests/Dark{len(modes)}-v0"))
        with pytest.raises(ValueError, match=f"env 'feelgood-tests/Dark.-v0' cannot be recorded: {problem}"):
            named.record(tmp_path / "line.gif")
    with pytest.raises(ValueError, match=r"path of a recording must end in \.gif or \.mp4, got 'line\.avi'"):
        policy.record("line.avi")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_episodes": 0}, "num_episodes must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
    ],
)
def test_an_evaluation_of_nothing_is_refused(policy, arguments, message):
    with pytest.raises(ValueError, match=message):
        policy.evaluate(**arguments)


def test_the_task_of_an_origin_is_that_of_its_name():
    assert make_environment(Origin("gym", "CartPole-v1")).name == gym_environment("CartPole-v1").name == "CartPole-v1"
