"""Samplers of `posteriors`, in PyTorch: the tasks of `samplers`."""

from peers_tasks import CLOCK, task
from peers_tasks.samplers import DIMENSION, NUM_CHAINS, NUM_STEPS, STEP_SIZE, saved
from peers_tasks.targets import NOISE, RUNS, SIZES, network_data, regression_data, slices


def regression():
    """The log posterior of `targets.regression`, summed over chains (chains, 25); the observed quantities; the size."""
    import torch

    x, y = map(torch.as_tensor, regression_data())

    def log_posterior(w, batch):
        logits = w @ x.T
        fit = (torch.nn.functional.softplus(logits) - y * logits).sum()
        return -fit - (w * w).sum() / 2, torch.tensor([])

    return log_posterior, lambda w: w, x.shape[1]


def network():
    """The log posterior of `targets.network`, summed over chains."""
    import torch

    x, y, probes = map(torch.as_tensor, network_data())
    places, size = slices()

    def predict(w, x):
        x = x.expand(len(w), *x.shape)
        for (inputs, outputs), (begin, middle, end) in zip(SIZES, places, strict=True):
            kernel = w[:, begin:middle].reshape(-1, inputs, outputs)
            x = torch.bmm(x, kernel) / inputs**0.5 + w[:, None, middle:end]
            x = torch.tanh(x) if outputs > 1 else x
        return x[..., 0]

    def log_posterior(w, batch):
        fit = ((predict(w, x) - y) ** 2).sum() / (2 * NOISE**2)
        return -fit - (w * w).sum() / 2, torch.tensor([])

    return log_posterior, lambda w: predict(w, probes), size


TARGETS = {"regression": regression, "network": network}


def sampler_of(name, log_posterior, step_size, friction):
    """SGLD or SGHMC with the discretisation of feelgood's `langevin` or `underdamped`, at temperature 1."""
    from posteriors.sgmcmc import sghmc, sgld

    if name == "langevin":
        return sgld.build(log_posterior, lr=step_size)
    return sghmc.build(log_posterior, lr=step_size, alpha=friction, momenta=0.0)


def on_quadratic(name):
    def prepare(quick):
        import torch

        torch.set_num_threads(1)
        density = lambda w, batch: (-(w * w).sum() / 2, torch.tensor([]))
        sampler = sampler_of(name, density, STEP_SIZE[name], 1.0)
        # The density is a product, so 64 chains are one large vector.
        state = sampler.init(torch.ones(NUM_CHAINS, DIMENSION))
        num_steps = NUM_STEPS

        def measure(repeat):
            nonlocal state
            began = CLOCK()
            for _ in range(num_steps):
                state, _ = sampler.update(state, None, inplace=True)
            return {"value": 1e9 * (CLOCK() - began) / (num_steps * NUM_CHAINS * DIMENSION)}

        return None, measure

    return prepare


def on_posterior(target, name):
    def prepare(quick):
        import torch

        torch.set_num_threads(1)
        run = RUNS[target]
        log_posterior, observe, size = TARGETS[target]()
        step_size, friction = run.underdamped if name == "underdamped" else (run.langevin, 1.0)
        # Its steps take many times as long, so it takes fewer of them.
        sampler, num_draws = sampler_of(name, log_posterior, step_size, friction), run.num_draws[quick] // 3

        def measure(repeat):
            torch.manual_seed(repeat)
            state, draws = sampler.init(torch.randn(run.num_chains, size)), []
            for i in range(run.num_warm_up + num_draws):
                if i == run.num_warm_up:
                    began = CLOCK()
                for _ in range(run.thin):
                    state, _ = sampler.update(state, None, inplace=True)
                if i >= run.num_warm_up:
                    with torch.no_grad():
                        draws.append(observe(state.params).clone())
            return {"seconds": CLOCK() - began, "draws": saved(torch.stack(draws, 1).numpy())}

        return None, measure

    return prepare


for each in ("langevin", "underdamped"):
    task("posteriors", each)(on_quadratic(each))
    for target in TARGETS:
        task("posteriors", f"{each} {target}")(on_posterior(target, each))
