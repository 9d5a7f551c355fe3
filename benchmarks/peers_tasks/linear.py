"""LSVI-UCB in a random linear MDP: episodes per second."""

from peers_tasks import CLOCK, compiled, task, timed

EPISODES = (100, 10_000)
LINEAR = {"dimension": 10, "num_states": 20, "num_actions": 4, "horizon": 10}


def linear_mdp():
    """Features (S, A, d) in the simplex, so that each transition is a law; measures (H, d, S) and weights (H, d)."""
    import numpy as np

    random = np.random.default_rng(0)
    d, num_states, num_actions, horizon = LINEAR.values()
    features = random.dirichlet(np.ones(d), (num_states, num_actions)).astype(np.float32)
    measures = random.dirichlet(np.ones(num_states), (horizon, d)).astype(np.float32)
    return features, measures, random.random((horizon, d)).astype(np.float32)


def feelgood_lsvi_ucb(num_episodes):
    def prepare(quick):
        import jax
        import jax.numpy as jnp

        from feelgood.linear import learn, lsvi_ucb, mdps

        num_states = LINEAR["num_states"]
        mdp = mdps.linear_mdp(*map(jnp.asarray, linear_mdp()), jnp.full(num_states, 1 / num_states, jnp.float32))
        learner = lsvi_ucb(mdp.features, mdp.horizon, bonus=0.1)
        run = lambda key: learn(key, mdp, learner, num_episodes).regret
        seconds, run = compiled(run, jax.random.key(0))
        return seconds, lambda repeat: {"value": num_episodes / timed(run, jax.random.key(repeat))[0]}

    return prepare


def numpy_lsvi_ucb(num_episodes):
    def prepare(quick):
        import numpy as np

        features, measures, weights_of_rewards = linear_mdp()
        rewards = np.einsum("sad,hd->hsa", features, weights_of_rewards)
        cumulative = np.cumsum(np.einsum("sad,hdt->hsat", features, measures), -1)
        horizon, (num_states, _, d) = len(rewards), features.shape

        def measure(repeat):
            """As the paper writes it: every episode regresses on all past transitions, with incremental Λ."""
            random, began = np.random.default_rng(repeat), CLOCK()
            gram = np.tile(np.eye(d, dtype=np.float32), (horizon, 1, 1))
            past_phi = np.zeros((horizon, num_episodes, d), np.float32)
            past_reward = np.zeros((horizon, num_episodes), np.float32)
            past_state = np.zeros((horizon, num_episodes), np.int64)
            for k in range(num_episodes):
                value, policy = np.zeros(num_states, np.float32), [None] * horizon
                for h in reversed(range(horizon)):
                    inverse = np.linalg.inv(gram[h])
                    targets = past_reward[h, :k] + value[past_state[h, :k]]
                    weights = inverse @ (past_phi[h, :k].T @ targets)
                    width = np.sqrt(((features @ inverse) * features).sum(-1))
                    q = np.clip(features @ weights + 0.1 * width, 0, horizon - h)
                    policy[h], value = q.argmax(-1), q.max(-1)
                state = random.integers(num_states)
                for h, uniform in enumerate(random.random(horizon)):
                    action = policy[h][state]
                    phi = features[state, action]
                    after = min(int(np.searchsorted(cumulative[h, state, action], uniform)), num_states - 1)
                    gram[h] += np.outer(phi, phi)
                    past_phi[h, k], past_reward[h, k], past_state[h, k] = phi, rewards[h, state, action], after
                    state = after
            return {"value": num_episodes / (CLOCK() - began)}

        return None, measure

    return prepare


for each in EPISODES:
    task("feelgood", f"lsvi_ucb {each}")(feelgood_lsvi_ucb(each))
    task("numpy", f"lsvi_ucb {each}")(numpy_lsvi_ucb(each))
