"""Runs whose functions are compiled once."""

from contextlib import contextmanager

import pytest

from feelgood.training import batch, external


@contextmanager
def compiled_once(made):
    """Lets all batches of one trainer share their compiled functions, which the dict `made` keeps."""
    compile_ = batch.over_devices
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            batch,
            "over_devices",
            lambda function, **settings: made.setdefault(function.__qualname__, compile_(function, **settings)),
        )
        yield


@contextmanager
def steps_compiled_once():
    """Lets external runs with one agent, environment and configuration share their compiled steps."""
    make, made = external.external_steps, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external, "external_steps", lambda *settings: (made or made.append(make(*settings)) or made)[0])
        yield
