"""One run: a spy in the agent's place records its inputs; a real agent shows the effect of numbers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.agents import ZOO, Agent, AgentState, Options, make_agent
from feelgood.envs import Environment, Spec, Step, nchain
from feelgood.envs.diagnostic import constant_reward, truncation, two_armed
from feelgood.replay import Batch
from feelgood.samplers import Info, SamplerState
from feelgood.training import FunctionalConfig, Tally, learning, trainer
from marks import fast_only

BATCH_SIZE = 6


def same(a, b):
    """Whether two trees agree bit for bit."""

    def data(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.ascontiguousarray(jax.random.key_data(leaf) if is_key else leaf)

    return jax.tree.all(jax.tree.map(lambda x, y: data(x).tobytes() == data(y).tobytes(), a, b))


def counter(episode_length=7):
    """Observations that are all different: a random multiple of 100, then one more at every step.

    The reward is the observation before the step. Each episode ends after `episode_length` steps.
    """

    def reset(key):
        start = 100 * jax.random.randint(key, (), 1, 100_000, jnp.int32)
        return start, start

    def step(key, state, action):
        end = (state + 1) % 100 == episode_length
        return state + 1, Step(state + 1, state.astype(jnp.float32), end, jnp.zeros((), bool))

    return Environment(reset, step, Spec((), np.dtype(np.int32), 256, episode_length))


def _log(num_updates):
    """Room for the inputs of the updates in `counter`."""
    many = lambda dtype=jnp.int32: jnp.zeros((num_updates, BATCH_SIZE), dtype)
    return {
        "target": jnp.zeros(num_updates),
        "key": jnp.zeros((num_updates, 2), jnp.uint32),
        "num_data": jnp.zeros(num_updates, jnp.int32),
        "batch": Batch(many(), many(jnp.uint8), many(jnp.float32), many(jnp.float32), many(), many(), many()),
    }


def _stamp(key, state, context, observation, progress):
    """An action that shows when it was taken: 200 times the share of the budget used."""
    return jnp.round(200 * jnp.asarray(progress)).astype(jnp.int32)


def spy(num_updates=0, *, explore=_stamp, exploit=lambda key, *_: jnp.int32(1), is_random=False):
    """Counts its gradient steps in place of parameters, and records its inputs in the first `num_updates`."""

    def make(spaces, hyper):
        def update(key, state, batch, num_data, next_values):
            count, log = state.sampler
            if num_updates:
                seen = {"target": next_values, "key": jax.random.key_data(key), "num_data": num_data, "batch": batch}
                log = jax.tree.map(lambda rows, row: rows.at[count.astype(jnp.int32)].set(row), log, seen)
            return state._replace(sampler=SamplerState(count + 1, log)), Info(*(jnp.zeros(()) for _ in Info._fields))

        return Agent(
            init=lambda key: AgentState(SamplerState(jnp.zeros(()), _log(num_updates)), (), jnp.zeros(())),
            begin=lambda key: jnp.zeros((), jnp.int32),
            explore=explore,
            exploit=exploit,
            look_ahead=lambda key, state, batch: state.target,
            update=update,
            sync=lambda state: state._replace(target=state.sampler.params),
            is_random=is_random,
        )

    return make


SPIED = FunctionalConfig(
    num_steps=40,
    learning_starts=9,
    train_frequency=5,
    replay_ratio=2.0,
    batch_size=BATCH_SIZE,
    capacity=30,
    target_update_period=10,
    evaluation_period=20,
    discount=0.5,
)
# The first of eight blocks ends at step 5 and does not learn; the second ends at step 10, after `learning_starts`.
NUM_UPDATES = 70


@functools.cache
def spied():
    """Whole runs of the spy on `counter`: states at the start and after each chunk, and the chunks' records."""
    one = trainer(counter(), spy(NUM_UPDATES), SPIED)
    states = [jax.jit(jax.vmap(one.init, (0, None)))(jax.vmap(jax.random.key)(jnp.arange(3)), {})]
    records = []
    advance = jax.jit(jax.vmap(one.advance, (0, None, None)))
    for chunk in range(SPIED.num_chunks):
        state, record = advance(states[-1], {}, jnp.int32(chunk))
        states.append(state)
        records.append(record)
    return states, records


def log_of(run=0):
    return jax.tree.map(lambda leaf: np.asarray(leaf[run]), spied()[0][-1].agent.sampler.memory)


# Blocks have 10 gradient steps and chunks 40: periods that divide both, none, or share a factor, short and long.
@pytest.mark.parametrize(
    "period", [*(pytest.param(period, marks=pytest.mark.slow) for period in (5, 2, 10)), 4, 15, 7, 60, 1]
)
def test_the_target_is_the_network_as_it_was_at_the_last_multiple_of_the_period(period):
    def make(spaces, hyper):
        agent = spy()(spaces, hyper)

        def update(key, state, batch, num_data, next_values):
            count, log = state.sampler
            state, info = agent.update(key, state, batch, num_data, next_values)
            log = log.at[count.astype(jnp.int32)].set(next_values)
            return state._replace(sampler=SamplerState(count + 1, log)), info

        def init(key):
            state = agent.init(key)
            return state._replace(sampler=SamplerState(state.sampler.params, jnp.zeros(NUM_UPDATES)))

        return agent._replace(init=init, update=update)

    one = trainer(constant_reward().environment, make, dataclasses.replace(SPIED, target_update_period=period))
    state = one.init(jax.random.key(0), {})
    advance = jax.jit(one.advance)
    for chunk in range(2):
        state, _ = advance(state, {}, jnp.int32(chunk))
        num_gradients = 40 * (chunk + 1) - 10
        assert state.agent.sampler.params == num_gradients
        assert state.agent.target == num_gradients // period * period
    np.testing.assert_array_equal(state.agent.sampler.memory, np.arange(NUM_UPDATES) // period * period)


def test_targets_are_copied_in_time_when_gradient_steps_are_more_than_an_int32_can_count():
    chunk, period = 2**31 // 40 + 13, 15
    one = trainer(constant_reward().environment, spy(), dataclasses.replace(SPIED, target_update_period=period))
    state, _ = jax.jit(one.advance)(one.init(jax.random.key(0), {}), {}, jnp.int32(chunk))
    copied = [k for k in range(1, 41) if (40 * chunk - 10 + k) % period == 0]
    assert state.agent.target == copied[-1] < 40


def test_steps_before_learning_starts_count_in_the_budget_and_bring_no_updates():
    states, _ = spied()
    assert [int(state.replay.size[0]) for state in states] == [0, 20, 30]
    assert [int(state.replay.head[0]) for state in states] == [0, 20, 40 % 30]
    assert [int(state.agent.sampler.params[0]) for state in states] == [0, 30, NUM_UPDATES]
    np.testing.assert_array_equal(log_of()["num_data"], np.repeat(np.minimum(5 * np.arange(2, 9), 30), 10))


@pytest.mark.parametrize(
    ("learning_starts", "num_blocks"),
    [
        (5, 8),
        (6, 7),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, 8), (20, 5), (40, 1))),
        (21, 4),
        (41, 0),
    ],
)
def test_a_block_learns_if_learning_starts_by_its_end(learning_starts, num_blocks):
    config = dataclasses.replace(SPIED, learning_starts=learning_starts)
    one = trainer(counter(), spy(), config)
    state, potentials = one.init(jax.random.key(0), {}), []
    for chunk in range(2):
        state, record = jax.jit(one.advance)(state, {}, jnp.int32(chunk))
        potentials.append(float(record.potential))
    assert state.agent.sampler.params == 10 * num_blocks
    # The spy's potential is 0; a period without gradient steps has none.
    assert np.isnan(potentials).tolist() == [num_blocks <= 4, num_blocks == 0]


def test_progress_is_the_share_of_the_budget_used_at_the_start_of_the_block():
    states, _ = spied()
    # 200 times progress: 0 in the first block of five steps, then 25 more in each of eight blocks.
    expected = np.repeat([0, 25, 50, 75, 100, 125, 150, 175], 5)
    ring = np.asarray(states[-1].replay.data.action[0])
    np.testing.assert_array_equal(ring[np.arange(10, 40) % 30], expected[-30:])
    np.testing.assert_array_equal(states[1].replay.data.action[0, :20], expected[:20])


def test_minibatches_hold_transitions_that_were_collected_and_all_of_them_in_time():
    states, _ = spied()
    log = log_of()
    rings = [np.asarray(state.replay.data.observation[0]) for state in states]
    batch = log["batch"]
    for i in range(NUM_UPDATES):
        block = i // 10 + 1
        chunk, collected = block // 4, 5 * (block + 1)
        # Slots written by the end of the chunk, less those written after this update.
        age = (collected - 1 - batch.slot[i]) % 30
        assert (age < min(collected, 30)).all()
        written_later = (batch.slot[i] - collected) % 30 < 20 * (chunk + 1) - collected
        kept = ~written_later
        np.testing.assert_array_equal(batch.observation[i][kept], rings[chunk + 1][batch.slot[i]][kept])
    assert (batch.observation > 0).all()
    assert set(rings[1][:20]) <= set(batch.observation.ravel())


def test_transitions_hold_their_true_successor_their_reward_and_the_start_of_their_episode():
    batch = log_of()["batch"]
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 1)
    np.testing.assert_array_equal(batch.return_, batch.observation)
    np.testing.assert_array_equal(batch.first_observation, batch.observation // 100 * 100)
    np.testing.assert_array_equal(batch.bootstrap_discount, np.where(batch.observation % 100 == 6, 0, 0.5))


def test_episodes_run_on_across_blocks_and_chunks():
    states, records = spied()
    observations = np.asarray(states[1].replay.data.observation[0, :20])
    np.testing.assert_array_equal(observations % 100, np.arange(20) % 7)
    # Episodes end at every seventh step.
    assert [int(record.num_episodes[0]) for record in records] == [20 // 7, 40 // 7 - 20 // 7]
    assert float(records[0].training_return[0]) == pytest.approx(observations[:14].astype(float).sum(), rel=1e-6)


def test_runs_of_other_seeds_have_other_starts_minibatches_and_noise_and_no_key_comes_twice():
    logs = [log_of(run) for run in range(3)]
    keys = np.concatenate([log["key"] for log in logs])
    assert len(np.unique(keys, axis=0)) == 3 * NUM_UPDATES
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not (logs[i]["batch"].slot == logs[j]["batch"].slot).all(-1).any()
    starts = [np.unique(log["batch"].first_observation) for log in logs]
    assert len(np.unique(np.concatenate(starts))) == sum(map(len, starts))


def test_slots_are_drawn_uniformly_from_stored_transitions():
    slots = np.concatenate([log_of(run)["batch"].slot[40:].ravel() for run in range(3)])
    counts = np.bincount(slots, minlength=30)
    # 540 draws over 30 slots: χ² with 29 degrees of freedom, 99.9% quantile.
    assert ((counts - 18) ** 2 / 18).sum() < 58.3


def test_a_share_of_every_minibatch_is_of_the_newest_transitions(monkeypatch):
    monkeypatch.setattr(learning, "_NUM_RECENT", 2)
    one = trainer(counter(), spy(NUM_UPDATES), dataclasses.replace(SPIED, recent_share=0.34))
    state, advance = one.init(jax.random.key(0), {}), jax.jit(one.advance)
    for chunk in range(SPIED.num_chunks):
        state, _ = advance(state, {}, jnp.int32(chunk))
    slots = np.asarray(state.agent.sampler.memory["batch"].slot)
    num_recent = round(0.34 * BATCH_SIZE)
    for block, own in enumerate(slots.reshape(-1, SPIED.updates_per_block, BATCH_SIZE)):
        num_steps = (block + 2) * SPIED.train_frequency  # the first block does not learn
        assert set(own[..., :num_recent].ravel().tolist()) <= {(num_steps - 1) % 30, (num_steps - 2) % 30}
        assert len(set(own[..., num_recent:].ravel().tolist())) > 2


CHAIN = FunctionalConfig(
    num_steps=200, learning_starts=5, replay_ratio=1.0, evaluation_period=100, capacity=50, success_return=9.5
)


def walk(action, **settings):
    going = lambda key, *_: jnp.int32(action)
    one = trainer(nchain(5), spy(explore=going, exploit=going, **settings), CHAIN)
    state = one.init(jax.random.key(0), {})
    initial = one.evaluate(jax.random.key(1), state, {})
    advance = jax.jit(one.advance)
    records = []
    for chunk in range(2):
        state, record = advance(state, {}, jnp.int32(chunk))
        records.append(jax.tree.map(float, record))
    return float(initial), records


def test_going_right_all_the_way_is_a_success_every_episode_and_returns_ten():
    initial, (first, second) = walk(1)
    assert initial == first.evaluation == second.evaluation == 10
    # Episodes last 13 steps: they end at steps 13, 26, …, 91 and 104, 117, …, 195.
    assert (first.num_episodes, first.num_successes, first.first_success, first.training_return) == (7, 7, 13, 70)
    assert (second.num_episodes, second.num_successes, second.first_success, second.training_return) == (8, 8, 4, 80)


def test_going_left_never_counts_as_success():
    initial, (first, _) = walk(0)
    # The first step reaches the left end, the other twelve are paid there.
    assert initial == first.evaluation == pytest.approx(0.012)
    assert (first.num_episodes, first.num_successes, first.first_success) == (7, 0, 100)
    assert first.training_return == pytest.approx(7 * 0.012)


def test_a_random_evaluation_is_the_mean_of_several_episodes_and_a_sure_one_plays_once():
    coin = lambda key, *_: jax.random.randint(key, (), 0, 2, jnp.int32)
    config = FunctionalConfig(num_steps=10, evaluation_period=10, capacity=10, num_evaluation_episodes=8)
    returns = {}
    arms = two_armed().environment
    shaky = arms._replace(spec=arms.spec._replace(is_random=True))
    cases = {"neither": (arms, False), "agent": (arms, True), "environment": (shaky, False)}
    for case, (environment, is_random) in cases.items():
        one = trainer(environment, spy(exploit=coin, is_random=is_random), config)
        state = one.init(jax.random.key(0), {})
        evaluate = jax.jit(jax.vmap(lambda key, one=one, state=state: one.evaluate(key, state, {})))
        returns[case] = np.asarray(evaluate(jax.random.split(jax.random.key(1), 2000)))
    assert set(returns["neither"]) == {-1.0, 1.0}
    # Each episode is ±1 with equal chance, so the mean of eight has variance 1/8, itself known to within 3%.
    for random in ("agent", "environment"):
        assert abs(returns[random].mean()) < 4 * np.sqrt(1 / 8 / 2000)
        assert returns[random].var() == pytest.approx(1 / 8, rel=0.15)


def test_an_evaluation_counts_no_reward_after_the_end_of_its_episode():
    environment = truncation(3).environment
    longer = environment._replace(spec=environment.spec._replace(max_episode_steps=10))
    one = trainer(longer, spy(), FunctionalConfig(capacity=50))
    assert one.evaluate(jax.random.key(0), one.init(jax.random.key(1), {}), {}) == 3


def test_one_of_several_chains_acts_in_each_episode_and_all_learn_from_minibatches_of_their_own():
    """Each chain of the spy has a number of its own, which is its action."""

    def make(spaces, hyper):
        agent = spy(NUM_UPDATES, explore=lambda key, state, *_: state.frozen)(spaces, hyper)
        number = lambda key: jax.random.randint(key, (), 0, 256, jnp.int32)
        return agent._replace(init=lambda key: agent.init(key)._replace(frozen=number(key)))

    one = trainer(counter(), make, dataclasses.replace(SPIED, num_chains=3, num_steps=80, capacity=80))
    state, advance = jax.jit(one.init)(jax.random.key(1), {}), jax.jit(one.advance)
    for chunk in range(4):
        state, _ = advance(state, {}, jnp.int32(chunk))
    stored = state.replay.data
    episodes, actions = np.asarray(stored.observation) // 100, np.asarray(stored.action)
    numbers = [set(actions[episodes == episode].tolist()) for episode in np.unique(episodes)]
    assert len(numbers) == 12
    assert all(len(each) == 1 for each in numbers)
    assert set.union(*numbers) == set(np.asarray(state.agent.frozen).tolist())
    assert (state.agent.sampler.params == 150).all()  # gradient steps of each
    slots = np.asarray(state.agent.sampler.memory["batch"].slot)
    assert slots.shape == (3, NUM_UPDATES, BATCH_SIZE)
    assert not any((slots[i] == slots[j]).all(-1).any() for i, j in ((0, 1), (0, 2), (1, 2)))


def test_evaluations_follow_all_chains():
    """The chains of the spy take one arm or the other; over many episodes each has the same share."""

    def make(spaces, hyper):
        agent = spy(exploit=lambda key, state, *_: state.frozen)(spaces, hyper)
        number = lambda key: jax.random.randint(key, (), 0, 2, jnp.int32)
        return agent._replace(init=lambda key: agent.init(key)._replace(frozen=number(key)))

    config = FunctionalConfig(
        num_steps=10, evaluation_period=10, capacity=10, num_evaluation_episodes=4000, num_chains=3
    )
    one = trainer(two_armed().environment, make, config)
    state = jax.jit(one.init)(jax.random.key(0), {})
    arms = np.asarray(state.agent.frozen)
    assert len(set(arms.tolist())) == 2
    score = jax.jit(lambda state: one.evaluate(jax.random.key(1), state, {}))(state)
    # The arms give −1 and 1, so the mean of 4,000 episodes has a standard error of at most 1/√4000.
    assert abs(score - np.where(arms == 1, 1, -1).mean()) < 4 / np.sqrt(4000)


REAL = FunctionalConfig(
    num_steps=100,
    learning_starts=10,
    train_frequency=5,
    replay_ratio=2.0,
    batch_size=8,
    capacity=60,
    target_update_period=15,
    evaluation_period=50,
)
TRACES = []


def _agent(spaces, hyper):
    TRACES.append(1)
    return make_agent("fg_ulmcdqn", spaces, {**hyper, "inverse_temperature": 1e4}, Options(hidden=(8,)))


ONE = trainer(nchain(5), _agent, REAL)
INIT = jax.jit(jax.vmap(ONE.init, (0, 0)))
ADVANCE = jax.jit(jax.vmap(ONE.advance, (0, 0, None)))
KEYS = jax.vmap(jax.random.key)(jnp.arange(3))


def train(step_sizes, keys=KEYS):
    hyper = {"step_size": jnp.asarray(step_sizes, jnp.float32)}
    state, records = INIT(keys, hyper), []
    for chunk in range(2):
        state, record = ADVANCE(state, hyper, jnp.int32(chunk))
        records.append(record)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves, 1), *records)


def take(tree, run):
    return jax.tree.map(lambda leaf: leaf[run], tree)


def test_seeds_differ_from_the_first_network_on():
    initial = INIT(KEYS, {"step_size": jnp.full(3, 0.05)})
    moved, _ = train([0.05] * 3)
    for state in (initial, moved):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            pairs = zip(*(jax.tree.leaves(take(state.agent.sampler.params, run)) for run in (i, j)), strict=True)
            assert not any(np.array_equal(a, b) for a, b in pairs)


def test_the_same_seed_and_hyper_parameters_give_the_same_bits_in_every_lane():
    state, record = train([0.05, 0.02, 0.05], KEYS[jnp.array([1, 1, 1])])
    assert same(take(state, 0), take(state, 2))
    assert same(take(record, 0), take(record, 2))
    assert not same(take(state.agent, 0), take(state.agent, 1))


@pytest.mark.parametrize("bad", [np.nan, 1e30])
def test_a_diverged_run_is_marked_and_does_not_change_the_others(bad):
    state, record = train([0.05, 0.05, 0.05])
    beside, with_bad = train([0.05, bad, 0.05])
    assert record.is_finite.all()
    assert with_bad.is_finite.tolist() == [[True, True], [False, False], [True, True]]
    for run in (0, 2):
        assert same(take(state, run), take(beside, run))
        assert same(take(record, run), take(with_bad, run))


def test_new_numbers_do_not_trace_again():
    train([0.05, 0.05, 0.05])
    before = len(TRACES)
    train([0.01, 0.02, 0.03], KEYS[::-1])
    assert len(TRACES) == before


def test_a_run_alone_is_the_run_among_others():
    hyper = jnp.array([0.05, 0.02, 0.01])
    together, records = train(hyper)
    init, advance = jax.jit(ONE.init), jax.jit(ONE.advance)
    for run in (0, 2):
        mine = {"step_size": hyper[run]}
        state = init(KEYS[run], mine)
        for chunk in range(2):
            state, record = advance(state, mine, jnp.int32(chunk))
            # Counts agree exactly; numbers to rounding, as the compiler may fuse other lanes otherwise.
            among = take(records, (run, chunk))
            assert [int(record[i]) for i in range(1, 4)] == [int(among[i]) for i in range(1, 4)]
            np.testing.assert_allclose(record.potential, among.potential, rtol=1e-4)
        assert same(state.replay, take(together.replay, run))
        for a, b in zip(jax.tree.leaves(state.agent), jax.tree.leaves(take(together.agent, run)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_evaluating_more_often_or_with_other_keys_changes_no_bit_of_the_training():
    hyper = {"step_size": jnp.full(3, 0.05)}
    state = INIT(KEYS, hyper)
    evaluate = jax.jit(jax.vmap(ONE.evaluate))
    for seed in range(3):
        before = jax.tree.map(jnp.copy, state)
        evaluate(jax.random.split(jax.random.key(seed), 3), state, hyper)
        assert same(before, state)
        if seed < 2:
            state, _ = ADVANCE(state, hyper, jnp.int32(seed))
    assert same(state, train([0.05] * 3)[0])


def test_the_schedule_sets_the_hyper_parameters_of_each_block():
    # The spy writes the step size of its update in place of the target's value.
    def make(spaces, hyper):
        agent = spy(NUM_UPDATES)(spaces, hyper)
        return agent._replace(look_ahead=lambda key, state, batch: jnp.asarray(hyper["step_size"], jnp.float32))

    one = trainer(counter(), make, SPIED, lambda hyper, progress: {"step_size": hyper["step_size"] * (1 - progress)})
    state = one.init(jax.random.key(0), {"step_size": 8.0})
    for chunk in range(2):
        state, _ = jax.jit(one.advance)(state, {"step_size": 8.0}, jnp.int32(chunk))
    # The last seven of eight blocks learn, with ten gradient steps each.
    np.testing.assert_allclose(state.agent.sampler.memory["target"], np.repeat(np.arange(7.0, 0, -1), 10), rtol=1e-6)


def test_a_cut_is_bootstrapped_through_with_a_single_action():
    config = FunctionalConfig(
        num_steps=600, train_frequency=5, replay_ratio=1.0, capacity=50, discount=0.8, target_update_period=10,
        evaluation_period=600,
    )  # fmt: skip
    diagnostic = truncation()
    agent = lambda spaces, hyper: make_agent("lmcdqn", spaces, {"step_size": 0.1, **hyper}, Options(hidden=()))
    one = trainer(diagnostic.environment, agent, config)
    run, record = jax.jit(lambda key: one.advance(one.init(key, {}), {}, 0))(jax.random.key(0))
    value = run.agent.sampler.params(diagnostic.observations)
    np.testing.assert_allclose(value, diagnostic.action_values(0.8), rtol=1e-3)
    assert record.evaluation == 4
    assert record.num_episodes == 600 // 4


def by_observation(observation):
    """A priority that differs between observations."""
    return (observation % 7 + 1) ** 2.0


def test_minibatches_follow_the_priorities_at_the_start_of_their_block_and_set_new_ones_at_its_end():
    num_updates = NUM_UPDATES

    def make(spaces, hyper):
        def update(key, state, batch, num_data, next_values):
            count, log = state.sampler
            seen = (batch.slot, batch.observation, batch.weight)
            log = jax.tree.map(lambda rows, row: rows.at[count.astype(jnp.int32)].set(row), log, seen)
            return state._replace(sampler=SamplerState(count + 1, log)), Info(*(jnp.zeros(()) for _ in Info._fields))

        def init(key):
            log = tuple(jnp.zeros((num_updates, BATCH_SIZE), dtype) for dtype in (jnp.int32, jnp.int32, jnp.float32))
            return AgentState(SamplerState(jnp.zeros(()), log), (), jnp.zeros(()))

        # Also a check that the parameters are those before the update: the count of updates so far.
        priorities = lambda key, state, batch, next_values: by_observation(batch.observation) + state.sampler.params
        return spy()(spaces, hyper)._replace(init=init, update=update, priorities=priorities)

    one = trainer(counter(), make, dataclasses.replace(SPIED, importance_exponent=0.5))
    state, advance = one.init(jax.random.key(0), {}), jax.jit(one.advance)
    for chunk in range(2):
        state, _ = advance(state, {}, jnp.int32(chunk))
    slots, observations, weights = map(np.asarray, state.agent.sampler.memory)

    # The same bookkeeping in NumPy: a new transition has the largest power so far, a tried one its own.
    powers, largest = np.zeros(30), 1.0
    powers[:5] = largest
    for block in range(1, 8):
        powers[(5 * block + np.arange(5)) % 30] = largest
        size, exponent = min(5 * (block + 1), 30), 0.5 + 0.5 * block / 8
        new = {}
        for i in range(10 * (block - 1), 10 * block):
            probabilities = powers[slots[i]] / powers.sum()
            expected = (size * probabilities) ** -exponent
            np.testing.assert_allclose(weights[i], expected / expected.max(), rtol=1e-4)
            for slot, power in zip(slots[i], (by_observation(observations[i]) + i + 1e-6) ** 0.6, strict=True):
                new[slot] = max(new.get(slot, 0), power)
        powers[list(new)] = list(new.values())
        largest = max(largest, *new.values())
    np.testing.assert_allclose(np.asarray(state.replay.priorities.values).ravel()[:30], powers, rtol=1e-4)
    assert len(np.unique(weights.round(4))) > 20


@pytest.mark.parametrize("name", fast_only(("prioritized_dqn",), ZOO))
def test_every_agent_trains_on_the_chain(name):
    config = FunctionalConfig(
        num_steps=300, replay_ratio=1.0, evaluation_period=300, capacity=200, num_evaluation_episodes=2
    )
    make = lambda spaces, hyper: make_agent(name, spaces, hyper, Options(hidden=(8,), num_members=2, num_atoms=5))
    one = trainer(nchain(4), make, config)

    @jax.jit
    def train(key):
        start = one.init(key, {})
        return start, *one.advance(start, {}, 0)

    start, run, record = train(jax.random.key(0))
    assert record.is_finite
    assert 0 <= record.evaluation <= 10
    assert record.num_episodes == 300 // 12
    assert not any(jax.tree.leaves(jax.tree.map(np.array_equal, start.agent.sampler.params, run.agent.sampler.params)))
    assert (run.replay.priorities == ()) == (name != "prioritized_dqn")


def test_settings_that_do_not_fit_together_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="evaluation_period must be a multiple of train_frequency = 10, got 105"):
        FunctionalConfig(evaluation_period=105)
    with pytest.raises(ValueError, match="num_steps must be a multiple of evaluation_period = 1000, got 1500"):
        FunctionalConfig(num_steps=1500)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
        FunctionalConfig(batch_size=0)
    with pytest.raises(ValueError, match=r"replay_ratio times train_frequency must be a whole number .* 0\.25 · 10"):
        FunctionalConfig(replay_ratio=0.25)
    with pytest.raises(ValueError, match="replay_ratio must be positive and finite, got 0"):
        FunctionalConfig(replay_ratio=0.0)
    assert FunctionalConfig(replay_ratio=0.3).updates_per_block == 3
    with pytest.raises(ValueError, match="discount must be in \\[0, 1\\]"):
        FunctionalConfig(discount=-0.5)
    with pytest.raises(ValueError, match="recent_share must be in \\[0, 1\\]"):
        FunctionalConfig(recent_share=1.5)
    with pytest.raises(ValueError, match="priority_exponent must be non-negative"):
        FunctionalConfig(priority_exponent=-0.5)


def test_a_tally_sees_every_step_of_every_period_and_changes_nothing_else():
    """Its totals are those of the record, and it is given the states before resets."""
    config = FunctionalConfig(
        num_steps=120, evaluation_period=40, train_frequency=5, learning_starts=8, replay_ratio=1.0, batch_size=4
    )
    make = lambda spaces, hyper: make_agent("dqn", spaces, hyper, Options(hidden=()))

    def add(totals, ended, returns, states):
        assert ended.shape == returns.shape == states.time.shape == (40,)
        return {
            "episodes": totals["episodes"] + jnp.sum(ended),
            "return": totals["return"] + jnp.sum(jnp.where(ended, returns, 0.0)),
            "lengths": totals["lengths"] + jnp.sum(jnp.where(ended, states.time, 0)),
        }

    init = {"episodes": jnp.int32(0), "return": jnp.float32(0), "lengths": jnp.int32(0)}
    environment, hyper = nchain(5), {"step_size": 0.01}
    counted, plain = trainer(environment, make, config, tally=Tally(init, add)), trainer(environment, make, config)
    one, other = counted.init(jax.random.key(0), hyper), plain.init(jax.random.key(0), hyper)
    advance, advance_plain = jax.jit(counted.advance), jax.jit(plain.advance)
    episodes, returns = 0, 0.0
    for chunk in range(3):
        one, record = advance(one, hyper, chunk)
        other, _ = advance_plain(other, hyper, chunk)
        episodes, returns = episodes + int(record.num_episodes), returns + float(record.training_return)
    assert int(one.totals["episodes"]) == episodes == 120 // 13
    assert float(one.totals["return"]) == pytest.approx(returns)
    assert int(one.totals["lengths"]) == 13 * episodes
    assert same(one._replace(totals=()), other)
