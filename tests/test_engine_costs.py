"""The model of studies on several devices, `benchmarks/engine.py`, against hand-computed values."""

import pytest

from scripts import benchmark

engine = benchmark("engine")


def test_the_time_of_a_batch_fits_the_measured_rates(engine):
    for num_runs, rate, tolerance in ((256, 2.8e6, 0.02), (4096, 6.1e6, 0.02), (10_000, 6.5e6, 0.03)):
        seconds = engine.batch_seconds(num_runs, 1000) - engine.COMPILE_SECONDS
        assert num_runs * 1000 / seconds == pytest.approx(rate, rel=tolerance)


@pytest.mark.parametrize(
    ("plans", "num_devices", "seconds"),
    [
        ([[1, 2, 3]], 8, 6),  # batches of a plan follow each other
        ([[1, 2, 3], [4]], 1, 10),
        ([[1, 2, 3], [4]], 2, 6),
        ([[4], [3], [3], [2]], 2, 6),
        ([[2, 2], [2, 2], [2, 2]], 2, 6),
    ],
)
def test_plans_share_the_devices(engine, plans, num_devices, seconds):
    assert engine.makespan(plans, num_devices) == seconds
