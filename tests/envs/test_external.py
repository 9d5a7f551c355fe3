"""External environments: real games for a few thousand frames, and Gymnasium's environments."""

import os
import sys
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from feelgood.envs import priority
from feelgood.envs.external import atari, gym_environment, vector_environment
from feelgood.replay.frames import Arrival, frame_replay
from feelgood.studies.atari.paper import GAMES
from feelgood.training.evaluation import play, stacked

pytest.importorskip("ale_py")
LANES = 3


def random_play(env, num_turns, seed=0):
    """Yields the outcomes of random actions: (action, seen, reward, terminated, truncated, info)."""
    rng = np.random.default_rng(seed)
    for _ in range(num_turns):
        action = rng.integers(0, env.single_action_space.n, env.num_envs)
        yield action, *env.step(action)


def test_stacks_of_single_frames_are_those_of_the_emulator_s_own_stacking():
    """On the same games. The emulator's own stacks begin with black frames, ours with the first frame repeated."""
    from ale_py.vector_env import AtariVectorEnv

    environment = atari("breakout", life_loss=False)
    ours, theirs = environment.make(LANES, True), AtariVectorEnv("breakout", LANES, stack_num=4, reward_clipping=False)
    replay = frame_replay(
        40, LANES, environment.frame_shape, environment.frame_dtype, num_actions=environment.num_actions, stack=4
    )
    state, whole = replay.init(), theirs.reset(seed=5)[0]
    frames = ours.reset(seed=5)[0].reshape(LANES, 84, 84)
    is_first, age, none = np.ones(LANES, bool), np.zeros(LANES, int), np.zeros(LANES)
    stacks, num_whole, ended = stacked(None, frames, is_first, 4), 0, np.zeros(LANES, bool)
    for turn, (action, seen, reward, terminated, truncated, _) in enumerate(random_play(ours, 180)):
        age = np.where(is_first, 0, age + 1)
        stacks = stacked(stacks, frames, is_first, 4)
        state = replay.add(state, Arrival(frames, is_first, none.astype(int), none, none.astype(bool)))
        if turn % 5 == 0 or is_first.any():
            np.testing.assert_array_equal(replay.newest(state), stacks)
        for lane in range(LANES):
            known = min(age[lane], 3) + 1
            np.testing.assert_array_equal(stacks[lane, -known:], whole[lane, -known:])
            assert (stacks[lane, :-known] == stacks[lane, -known]).all()
            num_whole += known == 4
        whole, reward_theirs, terminated_theirs, _, _ = theirs.step(action)
        np.testing.assert_array_equal(reward, reward_theirs)
        np.testing.assert_array_equal(terminated, terminated_theirs)
        frames, is_first, ended = seen.reshape(LANES, 84, 84), ended, terminated | truncated
    assert num_whole > 400
    assert age.min() < 100  # some lane has begun a second episode


def test_a_lost_life_ends_an_episode_of_training_but_not_the_game():
    training, evaluation = (atari("breakout").make(LANES, training) for training in (True, False))
    training.reset(seed=1)
    evaluation.reset(seed=1)
    lives_after, game_overs, games = [], 0, 0
    for (_, _, _, terminated, _, info), (_, _, _, over, _, _) in zip(
        random_play(training, 260), random_play(evaluation, 260), strict=True
    ):
        assert (terminated | ~over).all()  # the same games: their ends are ends for both
        lives_after += info["lives"][terminated].tolist()
        game_overs += int((info["lives"][terminated] == 0).sum())
        games += int(over.sum())
    assert set(lives_after) == {0, 1, 2, 3, 4}  # one end for each of five lives, the last one with the game
    assert game_overs == games > 2


def test_learning_sees_the_sign_of_a_reward_and_evaluation_all_of_it():
    environment = atari("pong")
    np.testing.assert_array_equal(environment.transform_reward(np.array([-7.0, 0.0, 300.0])), [-1, 0, 1])
    np.testing.assert_array_equal(atari("pong", clip_rewards=False).transform_reward(np.array([300.0])), [300])
    returns, lengths = play(
        environment.make(2, False), environment, lambda time, seen: np.zeros(2), seed=0, max_steps=2000
    )
    np.testing.assert_array_equal(returns, [-21, -21])  # a full game against one who does nothing
    assert (lengths > 700).all()


def test_pixels_are_scaled_if_requested_but_not_in_the_paper_s_form():
    pixels = np.array([0, 128, 255], np.uint8)
    np.testing.assert_array_equal(atari("pong").decode(pixels), [0, 128, 255])
    np.testing.assert_allclose(atari("pong", pixel_scale=1 / 255).decode(pixels), [0, 128 / 255, 1], rtol=1e-6)


def test_single_environments_can_reset_while_others_continue():
    environment = atari("freeway")
    env = environment.make(LANES, True)
    env.reset(seed=0)
    *_, (_, seen, *_) = random_play(env, 20)
    is_reset = np.array([False, True, False])
    shown = environment.reset_lanes(env, is_reset)
    assert [np.array_equal(shown[lane], seen[lane]) for lane in range(LANES)] == [True, False, True]
    info = env.step(np.zeros(LANES, np.int64))[-1]
    assert info["episode_frame_number"][1] < 50 < info["episode_frame_number"][[0, 2]].min()


def test_all_games_of_the_paper_are_there_with_their_minimal_actions():
    known = {"alien": 18, "freeway": 3, "gravitar": 18, "hero": 18, "pitfall": 18, "qbert": 6, "solaris": 18}
    assert {game: atari(game).num_actions for game in GAMES} == {**known, "venture": 18}
    assert atari("qbert", full_action_space=True).num_actions == 18
    assert atari("qbert").observation_shape == (4, 84, 84)


def test_gymnasium_s_tasks_have_their_shapes_and_whole_numbers_are_stored_unchanged():
    cart = gym_environment("CartPole-v1")
    assert (cart.observation_shape, cart.num_actions, cart.frame_dtype) == ((4,), 2, np.dtype(np.float32))
    lake = gym_environment("FrozenLake-v1", is_slippery=False)
    assert (lake.observation_shape, lake.frame_dtype, lake.is_one_hot) == ((), np.dtype(np.int32), True)
    env = lake.make(2, True)
    np.testing.assert_array_equal(env.reset(seed=0)[0], [0, 0])
    seen = env.step(np.array([2, 1]))[0]
    np.testing.assert_array_equal(seen, [1, 4])
    np.testing.assert_array_equal(lake.decode(seen), np.eye(16)[[1, 4]])


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize(("limit", "expected"), [(None, 200), (400, 400), (-1, None)])
def test_the_time_limit_is_that_of_the_settings(vectorization, limit, expected):
    settings = {} if limit is None else {"max_episode_steps": limit}
    assert gym_environment("MountainCar-v0", vectorization=vectorization, **settings).time_limit == expected


@pytest.mark.parametrize(
    ("dtype", "high", "stored"),
    [
        (np.uint64, 2**20, np.uint32),
        (np.uint64, 2**40, np.float32),
        (np.int64, 2**20, np.int32),
        (np.int64, 2**31, np.float32),
        (np.float64, 1, np.float32),
        (np.uint8, 255, np.uint8),
        (np.bool_, 1, np.bool_),
    ],
)
def test_observations_are_stored_in_a_dtype_that_holds_them(dtype, high, stored):
    class Wide(Endless):
        observation_space = gymnasium.spaces.Box(0, high, (2,), dtype)

        def reset(self, *, seed=None, options=None):
            return np.array([0, high], dtype), {}

    make = lambda n, training: SyncVectorEnv([Wide] * n, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert vector_environment(make).frame_dtype == stored


def test_whole_numbers_from_another_start_are_flattened():
    class Offset(Endless):
        observation_space = gymnasium.spaces.Discrete(3, start=5)

        def reset(self, *, seed=None, options=None):
            return 6, {}

    make = lambda n, training: SyncVectorEnv([Offset] * n, autoreset_mode=AutoresetMode.NEXT_STEP)
    environment = vector_environment(make)
    assert (environment.observation_shape, environment.is_one_hot) == ((3,), False)
    np.testing.assert_array_equal(environment.make(2, True).reset()[0], np.eye(3)[[1, 1]])


class Continuous(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


class Endless(Continuous):
    action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: gym_environment("Pendulum-v1"),
            "env 'Pendulum-v1' must have discrete actions, one gymnasium.spaces.Discrete, got Box",
        ),
        (lambda: gym_environment("NoSuchTask-v1"), "env 'NoSuchTask-v1' cannot be made: [^(]*$"),
        (
            lambda: gym_environment("FrozenLake-v1", map_name="8x9"),
            "settings of env 'FrozenLake-v1' do not fit: KeyError: '8x9'$",
        ),
        (lambda: gym_environment("venture"), r"env 'venture' cannot be made: .* \(Atari games have names as in atari:"),
        (
            lambda: gym_environment("ALE/NoSuchGame-v5"),
            r"cannot be made: .* \(Atari games have names as in atari:venture\)",
        ),
        (
            lambda: vector_environment(lambda n, t: gymnasium.make("CartPole-v1")),
            "must be a gymnasium.vector.VectorEnv, got",
        ),
        (
            lambda: vector_environment(
                lambda n, t: SyncVectorEnv([Endless] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
            ),
            "must be made with num_envs = 1, as asked for, got 3",
        ),
        (lambda: gym_environment("CartPole-v1", vectorization="fast"), "vectorization must be one of 'sync', 'async'"),
        (lambda: atari("venturre"), "game must be one of .* did you mean 'venture'"),
        (lambda: atari("venture", sticky=1.5), r"sticky must be in \[0, 1\), got 1.5"),
        (lambda: atari("venture", pixel_scale=0.0), "pixel_scale must be positive"),
        (lambda: atari("venture", num_threads=-1), "num_threads must be a whole number of at least 0, got -1"),
        (
            lambda: vector_environment(
                lambda n, t: SyncVectorEnv([Endless] * n, autoreset_mode=AutoresetMode.SAME_STEP)
            ),
            "must be made with autoreset_mode=AutoresetMode.NEXT_STEP",
        ),
    ],
)
def test_unsuitable_environments_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_missing_rom_is_one_sentence(monkeypatch):
    import ale_py.roms

    monkeypatch.setattr(ale_py.roms, "get_rom_path", lambda name: None)
    with pytest.raises(ValueError, match="the ROM of game 'pong' is missing"):
        atari("pong")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
@pytest.mark.parametrize("many_cores", [True, False])
def test_emulators_give_way_to_the_rest_of_the_process(many_cores, monkeypatch):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(priority, "_MANY_CORES", len(cores) + (not many_cores))
    environment, own = atari("freeway"), os.getpriority(os.PRIO_PROCESS, 0)
    before = priority.low_threads()
    env = environment.make(len(cores), True)
    time.sleep(0.1)  # the thread that made them ends
    threads = sorted(priority.low_threads() - before)
    assert len(threads) == len(cores)
    assert all(os.getpriority(os.PRIO_PROCESS, thread) > own for thread in threads)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
    where = [os.sched_getaffinity(thread) for thread in threads]
    policies = {os.sched_getscheduler(thread) for thread in threads}
    if many_cores:
        assert sorted(where, key=min) == [{core} for core in sorted(cores)]
        assert policies == {os.SCHED_IDLE}
    else:
        assert where == [cores] * len(threads)
        assert policies == {os.SCHED_OTHER}
    env.reset(seed=0)
    assert env.step(np.zeros(len(cores), np.int64))[0].shape[0] == len(cores)
    env.close()
