"""Batches of runs that are compiled once."""

from contextlib import contextmanager

import pytest

from feelgood.training import batch


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
