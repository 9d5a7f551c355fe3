"""Samplers in JAX: ns per parameter and step on a quadratic, effective samples per second on two posteriors."""

import tempfile

from peers_tasks import compiled, task, timed
from peers_tasks.targets import RUNS, TARGETS

NUM_CHAINS, DIMENSION, NUM_STEPS, NUM_LEAPFROG = 64, 4_000, 40, 3
STEP_SIZE = {"langevin": 1e-3, "underdamped": 1e-3, "mala": 1e-4, "hmc": 1e-3}


# On ‖w‖²/2.


def on_quadratic(chain):
    """A task from `chain(key, params) -> params`, which takes `NUM_STEPS` steps: ns per parameter and step."""

    def prepare(quick):
        import jax
        import jax.numpy as jnp

        keys = jax.random.split(jax.random.key(0), NUM_CHAINS)
        start = jnp.ones((NUM_CHAINS, DIMENSION), jnp.float32)
        seconds, run = compiled(jax.vmap(chain), keys, start)
        scale = 1e9 / (NUM_CHAINS * DIMENSION * NUM_STEPS)
        return seconds, lambda repeat: {"value": timed(run, keys, start)[0] * scale}

    return prepare


def scanned(key, state, step, num_steps=NUM_STEPS):
    """`num_steps` times `step(key, state) -> state`."""
    import jax

    keys = jax.random.split(key, num_steps)
    return jax.lax.scan(lambda state, key: (step(key, state), None), state, keys)[0]


def fixed(sampler, potential):
    """The sampler as `samplers.sample` runs it: it keeps the last gradient, as blackjax does."""
    return sampler if sampler.fixed is None else sampler.fixed(potential)


def feelgood_sampler(name):
    def chain(key, params):
        from feelgood import samplers

        step_size = STEP_SIZE[name]
        # Without jitter, the algorithm is the peer's.
        extra = {"num_leapfrog_steps": NUM_LEAPFROG, "jitter": 0.0} if name == "hmc" else {}
        potential = lambda w: (w * w).sum() / 2
        sampler = fixed(getattr(samplers, name)(step_size, **extra), potential)
        step = lambda key, state: sampler.step(key, state, potential)[0]
        return scanned(key, sampler.init(params), step).params

    return on_quadratic(chain)


for each in STEP_SIZE:
    task("feelgood", each)(feelgood_sampler(each))


@task("blackjax", "langevin")
@on_quadratic
def blackjax_sgld(key, params):
    import blackjax

    sampler = blackjax.sgld(lambda w, batch: -w)
    return scanned(key, sampler.init(params), lambda key, w: sampler.step(key, w, None, STEP_SIZE["langevin"]))


@task("blackjax", "underdamped")
@on_quadratic
def blackjax_sghmc(key, params):
    import blackjax

    # One call takes all steps: the momentum is drawn once, as in feelgood.
    sampler = blackjax.sghmc(lambda w, batch: -w, NUM_STEPS)
    return sampler.step(key, sampler.init(params), None, STEP_SIZE["underdamped"])


@task("blackjax", "mala")
@on_quadratic
def blackjax_mala(key, params):
    import blackjax

    sampler = blackjax.mala(lambda w: -(w * w).sum() / 2, STEP_SIZE["mala"])
    return scanned(key, sampler.init(params), lambda key, state: sampler.step(key, state)[0]).position


@task("blackjax", "hmc")
@on_quadratic
def blackjax_hmc(key, params):
    import blackjax
    import jax.numpy as jnp

    mass = jnp.ones(DIMENSION, jnp.float32)
    sampler = blackjax.hmc(lambda w: -(w * w).sum() / 2, STEP_SIZE["hmc"], mass, NUM_LEAPFROG)
    return scanned(key, sampler.init(params), lambda key, state: sampler.step(key, state)[0]).position


def noisy_sgd(step_size, key):
    """`optax.noisy_sgd` at temperature 1: its gradient noise has the variance `eta` and does not decay."""
    import optax

    return optax.noisy_sgd(step_size, eta=2 / step_size, gamma=0.0, key=key)


@task("optax", "langevin")
@on_quadratic
def optax_noisy_sgd(key, params):
    import optax

    transform = noisy_sgd(STEP_SIZE["langevin"], key)  # a key for each chain; otherwise all would share their noise

    def step(key, state):
        params, memory = state
        updates, memory = transform.update(params, memory, params)
        return optax.apply_updates(params, updates), memory

    return scanned(key, (params, transform.init(params)), step)[0]


# On the posteriors: `make(name, run, potential, size)` gives `init(key, params)`, `draw(key, state)` and
# `params_of(state)`.


def feelgood_draws(name, run, potential, size):
    from feelgood import samplers

    if name == "hmc":
        step_size, num_leapfrog = run.hmc
        sampler = samplers.hmc(step_size, num_leapfrog_steps=num_leapfrog, jitter=0.0)
    elif name == "underdamped":
        sampler = samplers.underdamped(*run.underdamped)
    else:
        sampler = getattr(samplers, name)(getattr(run, name))
    sampler = fixed(sampler, potential)
    step = lambda key, state: sampler.step(key, state, potential)[0]
    draw = step if name == "hmc" else lambda key, state: scanned(key, state, step, run.thin)
    return lambda key, params: sampler.init(params), draw, lambda state: state.params


def blackjax_draws(name, run, potential, size):
    import blackjax
    import jax
    import jax.numpy as jnp

    descent = lambda w, batch: jax.tree.map(jnp.negative, jax.grad(potential)(w))
    log_density = lambda w: -potential(w)
    if name == "langevin":
        sampler = blackjax.sgld(descent)
        step = lambda key, w: sampler.step(key, w, None, run.langevin)
        return lambda key, w: sampler.init(w), lambda key, w: scanned(key, w, step, run.thin), lambda w: w
    if name == "underdamped":
        step_size, friction = run.underdamped
        sampler = blackjax.sghmc(descent, run.thin, alpha=friction)
        return lambda key, w: sampler.init(w), lambda key, w: sampler.step(key, w, None, step_size), lambda w: w
    if name == "mala":
        sampler = blackjax.mala(log_density, run.mala)
    else:
        step_size, num_leapfrog = run.hmc
        sampler = blackjax.hmc(log_density, step_size, jnp.ones(size, jnp.float32), num_leapfrog)
    step = lambda key, state: sampler.step(key, state)[0]
    draw = step if name == "hmc" else lambda key, state: scanned(key, state, step, run.thin)
    return lambda key, w: sampler.init(w), draw, lambda state: state.position


def optax_draws(name, run, potential, size):
    import jax
    import optax

    update = noisy_sgd(run.langevin, jax.random.key(0)).update  # the key in use is in the state

    def step(key, state):
        params, memory = state
        updates, memory = update(jax.grad(potential)(params), memory, params)
        return optax.apply_updates(params, updates), memory

    return (
        lambda key, params: (params, noisy_sgd(run.langevin, key).init(params)),
        lambda key, state: scanned(key, state, step, run.thin),
        lambda state: state[0],
    )


def saved(draws):
    """Writes draws (chains, draws, observed) to a file and returns its name."""
    import numpy as np

    with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
        np.save(file, draws)
    return file.name


def on_posterior(target, name, make, num_chains=None):
    """A task: the observed quantities of all draws, and the seconds that they took."""

    def prepare(quick):
        import jax
        import jax.numpy as jnp
        import numpy as np

        run = RUNS[target]
        potential, observe, size = TARGETS[target]()
        init, draw, params_of = make(name, run, potential, size)
        num_draws = run.num_draws[quick]

        def chain(key):
            def advance(state, key):
                state = draw(key, state)
                return state, observe(params_of(state))

            key_init, key_draws = jax.random.split(key)
            start = jax.random.normal(key_init, (size,), jnp.float32)
            keys = jax.random.split(key_draws, run.num_warm_up + num_draws)
            return jax.lax.scan(advance, init(key_init, start), keys)[1]

        keys_of = lambda repeat: jax.random.split(jax.random.key(repeat), num_chains or run.num_chains)
        seconds, sample = compiled(jax.vmap(chain), keys_of(0))

        def measure(repeat):
            keys = jax.block_until_ready(keys_of(repeat))
            taken, draws = timed(sample, keys)
            # Warm-up is not sampling; its steps cost the same.
            share = num_draws / (num_draws + run.num_warm_up)
            return {"seconds": taken * share, "draws": saved(np.asarray(draws)[:, run.num_warm_up :])}

        return seconds, measure

    return prepare


for target in TARGETS:
    for each in STEP_SIZE:
        task("feelgood", f"{each} {target}")(on_posterior(target, each, feelgood_draws))
        task("blackjax", f"{each} {target}")(on_posterior(target, each, blackjax_draws))
    task("optax", f"langevin {target}")(on_posterior(target, "langevin", optax_draws))
