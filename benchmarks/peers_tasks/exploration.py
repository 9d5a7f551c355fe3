"""Gradient steps per second of value-based agents on N-chain, DeepSea and CartPole, all functional except bsuite's.

One environment step and one update in turn. DQN has 64 × 64 units and batches of 64; the ensembles have 20 members of
50 × 50 units and batches of 128, as bsuite's agent does.
"""

from peers_tasks import CLOCK, compiled, task, timed

HIDDEN, BATCH, CAPACITY, TARGET_PERIOD, LENGTH, SIZE = (64, 64), 64, 10_000, 200, 25, 20
MEMBERS, MEMBER_HIDDEN, MEMBER_BATCH = 20, (50, 50), 128
PROBLEMS = ("nchain", "deep_sea")


def num_steps(num_runs, quick):
    """Steps of a measurement, which takes some seconds."""
    return max((2_000 if quick else 5_000) // num_runs, 20)


def dense(key, sizes):
    """Weights and biases of a network, as dictionaries, drawn as Flax and Haiku do: LeCun's normal, truncated."""
    import jax
    import jax.numpy as jnp

    draw, keys = jax.nn.initializers.lecun_normal(), jax.random.split(key, len(sizes) - 1)
    return [
        {"kernel": draw(key, (inputs, outputs), jnp.float32), "bias": jnp.zeros(outputs, jnp.float32)}
        for key, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(layers, x):
    import jax

    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"]


# feelgood.


def feelgood_agent(agent, problem, num_runs=1, capacity=CAPACITY):
    def prepare(quick):
        import jax
        import jax.numpy as jnp

        from feelgood import agents, envs
        from feelgood.training import FunctionalConfig, trainer

        environments = {
            "nchain": lambda: envs.nchain(LENGTH),
            "deep_sea": lambda: envs.deep_sea(SIZE),
            "CartPole": envs.cart_pole,
        }
        is_ensemble = agent in ("bootstrapped_dqn", "ensemble_dqn")
        steps = num_steps(num_runs * (MEMBERS if is_ensemble else 1), quick)
        config = FunctionalConfig(
            num_steps=2 * steps,
            evaluation_period=steps,
            num_evaluation_episodes=1,
            learning_starts=1,
            replay_ratio=1.0,
            train_frequency=1,
            batch_size=MEMBER_BATCH if is_ensemble else BATCH,
            capacity=capacity,
            target_update_period=TARGET_PERIOD,
        )
        options = agents.Options(hidden=HIDDEN)
        if is_ensemble:
            options = agents.Options(hidden=MEMBER_HIDDEN, num_members=MEMBERS)
        make = lambda spaces, hyper: agents.make_agent(agent, spaces, hyper, options)
        one = trainer(environments[problem](), make, config)
        hyper = {name: jnp.full(num_runs, value, jnp.float32) for name, value in agents.ZOO[agent].hyper.items()}
        state = jax.jit(jax.vmap(one.init))(jax.random.split(jax.random.key(0), num_runs), hyper)
        # The first chunk fills the replay; the second is timed. The state is donated, as in training.
        advance = jax.jit(jax.vmap(one.advance, in_axes=(0, 0, None)), donate_argnums=0)
        began = CLOCK()
        advance = advance.lower(state, hyper, jnp.int32(1)).compile()
        seconds, holder = CLOCK() - began, [jax.block_until_ready(advance(state, hyper, jnp.int32(0)))[0]]
        scale = num_runs * steps * (MEMBERS if is_ensemble else 1)

        def measure(repeat):
            taken, (holder[0], _) = timed(advance, holder[0], hyper, jnp.int32(1))
            return {"value": scale / taken}

        return seconds, measure

    return prepare


for problem in PROBLEMS:
    for agent in ("dqn", "fg_ulmcdqn", "bootstrapped_dqn", "ensemble_dqn"):
        task("feelgood", f"{agent} {problem}")(feelgood_agent(agent, problem))
    task("feelgood", f"dqn {problem}, 20 runs")(feelgood_agent("dqn", problem, 20))
for capacity in (2_000, 50_000):
    task("feelgood", f"dqn CartPole {capacity}")(feelgood_agent("dqn", "CartPole", 1, capacity))


# The N-chain of feelgood for Gymnax, and for dm_env below.


def gymnax_problem(problem):
    """The environment and its parameters."""
    import gymnax
    import jax.numpy as jnp
    from flax import struct
    from gymnax.environments import environment, spaces

    if problem == "CartPole":
        return gymnax.make("CartPole-v1")
    if problem == "deep_sea":
        return gymnax.make("DeepSea-bsuite", size=SIZE)

    @struct.dataclass
    class State(environment.EnvState):
        position: jnp.ndarray
        time: jnp.ndarray

    class NChain(environment.Environment):
        @property
        def default_params(self):
            return environment.EnvParams(max_steps_in_episode=LENGTH + 8)

        def step_env(self, key, state, action, params):
            last, right = LENGTH - 1, action == 1
            reward = jnp.where(right & (state.position == last), 1.0, 0.0)
            reward += jnp.where(~right & (state.position == 0), 0.001, 0.0)
            position = jnp.clip(state.position + jnp.where(right, 1, -1), 0, last)
            state = State(position=position, time=state.time + 1)
            done = state.time >= params.max_steps_in_episode
            return self.get_obs(state), state, reward, done, {"discount": 1.0 - done}

        def reset_env(self, key, params):
            state = State(position=jnp.int32(1), time=jnp.int32(0))
            return self.get_obs(state), state

        def get_obs(self, state, params=None, key=None):
            return (jnp.arange(LENGTH) <= state.position).astype(jnp.float32)

        @property
        def num_actions(self):
            return 2

        def action_space(self, params=None):
            return spaces.Discrete(2)

        def observation_space(self, params):
            return spaces.Box(0, 1, (LENGTH,), jnp.float32)

    chain = NChain()
    return chain, chain.default_params


# rejax.


def rejax_dqn(problem, num_runs=1, capacity=CAPACITY):
    def prepare(quick):
        import jax
        from rejax import DQN

        steps = num_steps(num_runs, quick)
        environment, params = gymnax_problem(problem)
        algorithm = DQN.create(
            env=environment,
            env_params=params,
            agent_kwargs={"activation": "relu"},
            num_envs=1,
            num_epochs=1,
            ddqn=False,
            batch_size=BATCH,
            buffer_size=capacity,
            fill_buffer=0,
            total_timesteps=steps,
            eval_freq=steps,
            target_update_freq=TARGET_PERIOD,
        )
        # Without its 128 evaluation episodes; feelgood's figure includes one.
        algorithm = algorithm.replace(eval_callback=lambda algorithm, state, key: (), skip_initial_evaluation=True)
        train = lambda algorithm, keys: jax.vmap(algorithm.train)(keys)
        keys_of = lambda repeat: jax.random.split(jax.random.key(repeat), num_runs)
        if num_runs == 1:
            train, keys_of = lambda algorithm, key: algorithm.train(key), jax.random.key
        seconds, run = compiled(train, algorithm, keys_of(0))
        return seconds, lambda repeat: {"value": num_runs * steps / timed(run, algorithm, keys_of(repeat))[0]}

    return prepare


for problem in PROBLEMS:
    task("rejax", f"dqn {problem}")(rejax_dqn(problem))
    task("rejax", f"dqn {problem}, 20 runs")(rejax_dqn(problem, 20))
for capacity in (2_000, 50_000):
    task("rejax", f"dqn CartPole {capacity}")(rejax_dqn("CartPole", 1, capacity))


# PureJaxRL's DQN, which no package provides: its algorithm, on its environments (Gymnax) and its replay (Flashbax).


def purejaxrl_dqn(problem, num_runs=1, capacity=CAPACITY):
    def prepare(quick):
        import flashbax
        import jax
        import jax.numpy as jnp
        import optax

        steps = num_steps(num_runs, quick)
        environment, params = gymnax_problem(problem)
        num_actions, optimiser = environment.action_space(params).n, optax.adam(2.5e-4)
        replay = flashbax.make_flat_buffer(
            max_length=capacity, min_length=BATCH, sample_batch_size=BATCH, add_sequences=False, add_batch_size=1
        )
        reset = lambda key: jax.vmap(environment.reset, (0, None))(jax.random.split(key, 1), params)
        move = lambda key, state, action: jax.vmap(environment.step, (0, 0, 0, None))(
            jax.random.split(key, 1), state, action, params
        )
        flat = lambda observation: observation.reshape(observation.shape[0], -1)

        def learn(learner, memory, key):
            batch = replay.sample(memory, key).experience
            future = jnp.max(forward(learner["target"], batch.second["observation"]), -1)
            goal = batch.first["reward"] + 0.99 * (1 - batch.first["done"]) * future

            def loss(params):
                values = forward(params, batch.first["observation"])
                taken = jnp.take_along_axis(values, batch.first["action"][:, None], -1)[:, 0]
                return jnp.mean((taken - goal) ** 2)

            updates, moments = optimiser.update(jax.grad(loss)(learner["params"]), learner["moments"])
            return {**learner, "params": optax.apply_updates(learner["params"], updates), "moments": moments}

        def turn(carry, _):
            learner, memory, state, observation, key = carry
            key, key_action, key_pick, key_step, key_batch = jax.random.split(key, 5)
            epsilon = jnp.clip(1 - 0.95 * learner["time"] / 250_000, 0.05)
            greedy = jnp.argmax(forward(learner["params"], observation), -1)
            random = jax.random.randint(key_action, greedy.shape, 0, num_actions)
            action = jnp.where(jax.random.uniform(key_pick, greedy.shape) < epsilon, random, greedy)
            after, state, reward, done, _ = move(key_step, state, action)
            row = {"observation": observation, "action": action, "reward": reward, "done": done.astype(jnp.float32)}
            memory = replay.add(memory, row)
            learner = {**learner, "time": learner["time"] + 1}
            learner = jax.lax.cond(
                replay.can_sample(memory),
                lambda learner: learn(learner, memory, key_batch),
                lambda learner: learner,
                learner,
            )
            learner = jax.lax.cond(
                learner["time"] % TARGET_PERIOD == 0,
                lambda learner: {**learner, "target": learner["params"]},
                lambda learner: learner,
                learner,
            )
            return (learner, memory, state, flat(after), key), jnp.mean(reward)

        def begin(key):
            key_reset, key_network, key_loop = jax.random.split(key, 3)
            observation, state = reset(key_reset)
            observation = flat(observation)
            layers = dense(key_network, (observation.shape[-1], *HIDDEN, num_actions))
            learner = {"params": layers, "target": layers, "moments": optimiser.init(layers), "time": jnp.int32(0)}
            row = {"observation": observation[0], "action": jnp.int32(0), "reward": jnp.float32(0)}
            memory = replay.init({**row, "done": jnp.float32(0)})
            return advance((learner, memory, state, observation, key_loop), 2 * BATCH)[0]

        advance = lambda carry, steps: jax.lax.scan(turn, carry, None, steps)
        lift = jax.vmap if num_runs > 1 else lambda function: function
        keys = jax.random.split(jax.random.key(0), num_runs) if num_runs > 1 else jax.random.key(0)
        # Enough transitions for a batch come first, so that every timed step learns.
        carry = jax.block_until_ready(jax.jit(lift(begin))(keys))
        seconds, run = compiled(lift(lambda carry: advance(carry, steps)), carry)
        return seconds, lambda repeat: {"value": num_runs * steps / timed(run, carry)[0]}

    return prepare


for problem in PROBLEMS:
    task("purejaxrl", f"dqn {problem}")(purejaxrl_dqn(problem))
    task("purejaxrl", f"dqn {problem}, 20 runs")(purejaxrl_dqn(problem, 20))


# bsuite's Bootstrapped DQN.


def bsuite_boot_dqn(problem):
    def prepare(quick):
        import dm_env
        import numpy as np
        from bsuite.baselines.jax import boot_dqn
        from bsuite.environments.deep_sea import DeepSea
        from dm_env import specs

        class NChain(dm_env.Environment):
            def reset(self):
                self.position, self.time = 1, 0
                return dm_env.restart(self.observation())

            def step(self, action):
                last = LENGTH - 1
                reward = float(action == 1 and self.position == last)
                reward += 0.001 * (action == 0 and self.position == 0)
                self.position, self.time = min(max(self.position + 2 * action - 1, 0), last), self.time + 1
                done = self.time == LENGTH + 8
                return (dm_env.termination if done else dm_env.transition)(reward, self.observation())

            def observation(self):
                return (np.arange(LENGTH) <= self.position).astype(np.float32)

            def observation_spec(self):
                return specs.Array((LENGTH,), np.float32)

            def action_spec(self):
                return specs.DiscreteArray(2)

        environment = NChain() if problem == "nchain" else DeepSea(SIZE, mapping_seed=0)
        began = CLOCK()
        agent = boot_dqn.default_agent(environment.observation_spec(), environment.action_spec(), num_ensemble=MEMBERS)

        def play(num_steps):
            now = environment.reset()
            for _ in range(num_steps):
                action = agent.select_action(now)
                after = environment.step(action)
                agent.update(now, action, after)
                now = environment.reset() if after.last() else after

        play(2 * MEMBER_BATCH)  # the first updates compile
        compiling, steps = CLOCK() - began, 50 if quick else 150

        def measure(repeat):
            began = CLOCK()
            play(steps)
            return {"value": MEMBERS * steps / (CLOCK() - began)}

        return compiling, measure

    return prepare


for problem in PROBLEMS:
    task("bsuite", f"bootstrapped_dqn {problem}")(bsuite_boot_dqn(problem))
