"""DQN on CartPole: environment steps per second, and seconds until 20 greedy episodes have a mean return of 475.

Evaluations happen every 5,000 steps. Their time counts in feelgood, where they are part of the program, and not in the
peers.
"""

from peers_tasks import CLOCK, task

NUM_STEPS, PERIOD, NUM_EPISODES, GOAL = 50_000, 5_000, 20, 475.0


def feelgood_cart_pole(name, num_seeds=1):
    """Trains on functional CartPole with the settings of `feelgood.train(name, "CartPole-v1")`, evaluations included.

    Seeds that train together stop when each of them has reached the goal once.
    """

    def prepare(quick):
        import jax
        import jax.numpy as jnp
        import numpy as np

        from feelgood import agents, envs
        from feelgood.api import prepare as settings_of
        from feelgood.training import FunctionalConfig, trainer

        job = settings_of(name, "CartPole-v1", config={"num_steps": NUM_STEPS})
        shared = ("learning_starts", "replay_ratio", "capacity", "n_step", "target_update_period", "batch_size")
        config = FunctionalConfig(
            num_steps=NUM_STEPS,
            evaluation_period=PERIOD,
            num_evaluation_episodes=NUM_EPISODES,
            **{field: getattr(job.config, field) for field in shared},
        )
        one = trainer(envs.cart_pole(), job.spec.make, config, agents.anneal)
        keys_of = lambda repeat: jax.vmap(jax.random.key)(repeat * num_seeds + jnp.arange(num_seeds))
        hyper = {each: jnp.full(num_seeds, value, jnp.float32) for each, value in job.spec.hyper.items()}
        began = CLOCK()
        init = jax.jit(jax.vmap(one.init)).lower(keys_of(0), hyper).compile()
        state = init(keys_of(0), hyper)
        advance = jax.jit(jax.vmap(one.advance, in_axes=(0, 0, None)), donate_argnums=0)
        advance = advance.lower(state, hyper, jnp.int32(0)).compile()
        compiling = CLOCK() - began

        def measure(repeat):
            began, solved = CLOCK(), np.zeros(num_seeds, bool)
            state = init(keys_of(repeat), hyper)
            for chunk in range(1 if quick else config.num_chunks):
                state, record = advance(state, hyper, jnp.int32(chunk))
                solved |= np.asarray(record.evaluation) >= GOAL
                if solved.all():
                    break
            seconds = CLOCK() - began
            rate = num_seeds * (chunk + 1) * PERIOD / seconds
            return {"value": seconds if solved.all() else None, "rate": rate, "solved": int(solved.sum())}

        return compiling, measure

    return prepare


for each in ("dqn", "fg_ulmcdqn", "ensemble_dqn"):
    task("feelgood", f"CartPole {each}")(feelgood_cart_pole(each))
for each in ("dqn", "fg_ulmcdqn"):
    task("feelgood", f"CartPole {each}, 20 seeds")(feelgood_cart_pole(each, 20))


class Watch:
    """Seconds without those of evaluations, which stop the watch."""

    def __init__(self):
        self.began = CLOCK()

    def evaluate(self, evaluation):
        """Runs `evaluation() -> mean return` off the clock; returns the seconds so far and the mean return."""
        seconds = CLOCK() - self.began
        score = float(evaluation())
        self.began = CLOCK() - seconds
        return seconds, score


def answer(seconds, score, num_steps):
    return {"value": seconds if score >= GOAL else None, "rate": num_steps / seconds}


@task("stable-baselines3", "CartPole dqn")
def stable_baselines_dqn(quick):
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    tests = make_vec_env("CartPole-v1", NUM_EPISODES)

    class Check(BaseCallback):
        seconds, score = 0.0, -float("inf")

        def _on_training_start(self):
            self.watch = Watch()

        def _on_step(self):
            if self.num_timesteps % PERIOD == 0:
                play = lambda: evaluate_policy(self.model, tests, NUM_EPISODES, deterministic=True)[0]
                self.seconds, self.score = self.watch.evaluate(play)
            return self.score < GOAL and not (quick and self.num_timesteps >= PERIOD)

    def measure(repeat):
        # The hyper-parameters that RL Zoo publishes for CartPole-v1, for 50,000 steps.
        model = DQN(
            "MlpPolicy",
            gymnasium.make("CartPole-v1"),
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1_000,
            gamma=0.99,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
            policy_kwargs={"net_arch": [256, 256]},
            seed=repeat,
            device="cpu",
        )
        check = Check()
        model.learn(NUM_STEPS, callback=check)
        return answer(check.seconds, check.score, check.num_timesteps)

    return None, measure


@task("cleanrl", "CartPole dqn")
def cleanrl_dqn(quick):
    """The algorithm and the settings of CleanRL's `dqn_jax`, whose scripts no package provides.

    As there, the environment is one lane of Gymnasium's vector environment, acting and learning are two jitted calls,
    and the loop is Python. The replay is NumPy here.
    """
    import random

    import gymnasium
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import linen
    from flax.training.train_state import TrainState
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    total, capacity, batch, learning_starts, frequency, target_period = 500_000, 10_000, 128, 10_000, 10, 500

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            for width in (120, 84):
                x = linen.relu(linen.Dense(width)(x))
            return linen.Dense(2)(x)

    class State(TrainState):
        target: dict

    network = Network()
    values = jax.jit(network.apply)

    @jax.jit
    def update(state, now, action, after, reward, done):
        goal = reward + 0.99 * (1 - done) * jnp.max(network.apply(state.target, after), -1)

        def loss(params):
            taken = jnp.take_along_axis(network.apply(params, now), action[:, None], -1)[:, 0]
            return jnp.mean((taken - goal) ** 2)

        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    def lanes(num_lanes):
        make = lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
        return SyncVectorEnv([make] * num_lanes, autoreset_mode=AutoresetMode.SAME_STEP)

    tests = lanes(NUM_EPISODES)

    def play(params):
        """The mean return of the first episode of each lane."""
        now, _ = tests.reset()
        returns, alive = np.zeros(NUM_EPISODES), np.ones(NUM_EPISODES, bool)
        while alive.any():
            now, reward, terminated, truncated, _ = tests.step(np.asarray(values(params, now)).argmax(-1))
            returns += reward * alive
            alive &= ~(terminated | truncated)
        return returns.mean()

    def begin(repeat):
        params = network.init(jax.random.key(repeat), np.zeros((1, 4), np.float32))
        return State.create(apply_fn=network.apply, params=params, target=params, tx=optax.adam(2.5e-4))

    began, state = CLOCK(), begin(0)
    rows = np.zeros((batch, 4), np.float32), np.zeros(batch, np.int32), np.zeros((batch, 4), np.float32)
    jax.block_until_ready(update(state, *rows, *np.zeros((2, batch), np.float32)))
    values(state.params, np.zeros((1, 4), np.float32)).argmax(-1)
    compiling = CLOCK() - began

    def measure(repeat):
        random.seed(repeat)
        rng, environment, watch = np.random.default_rng(repeat), lanes(1), Watch()
        environment.single_action_space.seed(repeat)
        now, _ = environment.reset(seed=repeat)
        state = begin(repeat)
        replay = [np.zeros((capacity, *shape), dtype) for shape, dtype in (((4,), "f4"), ((), "i4"), ((4,), "f4"))]
        replay += [np.zeros(capacity, np.float32) for _ in range(2)]
        for step in range(4 * PERIOD if quick else total):
            if random.random() < max(1 - 0.95 * step / (total / 2), 0.05):
                action = np.array([environment.single_action_space.sample()])
            else:
                action = np.asarray(values(state.params, now).argmax(-1))
            after, reward, terminated, truncated, info = environment.step(action)
            last = info["final_obs"][0] if truncated[0] else after[0]
            for column, value in zip(replay, (now[0], action[0], last, reward[0], terminated[0]), strict=True):
                column[step % capacity] = value
            now = after
            if step > learning_starts:
                if step % frequency == 0:
                    rows = rng.integers(0, min(step + 1, capacity), batch)
                    state = update(state, *(column[rows] for column in replay))
                if step % target_period == 0:
                    state = state.replace(target=state.params)
            if (step + 1) % PERIOD == 0:
                jax.block_until_ready(state.params)
                seconds, score = watch.evaluate(lambda: play(state.params))  # noqa: B023 (called at once)
                if score >= GOAL:
                    break
        return answer(seconds, score, step + 1)

    return compiling, measure
