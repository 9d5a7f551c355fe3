"""Scores of runs with confidence intervals, and comparisons of two agents.

Examples:
  >>> import numpy as np, pandas as pd
  >>> from feelgood import statistics
  >>> returns = {"a": [0.0, 1.0, 0.0, 3.0], "b": [0.0, 2.0, 0.0, 4.0]}  # two runs each, before and after training
  >>> curves = pd.concat([pd.DataFrame({"agent": name, "return": returns[name]}) for name in "ab"])
  >>> curves = curves.assign(seed=[0, 0, 1, 1] * 2, step=[0, 10] * 4).reset_index(drop=True)
  >>> statistics.check_runs(curves)  # nothing is wrong
  >>> statistics.layout(curves).score, statistics.diverged(curves)
  ('return', '')
  >>> statistics.finite_scores(curves.assign(finite=curves["seed"] == 0), "return").tolist()[:4]  # seed 1 diverged
  [0.0, 1.0, nan, nan]
  >>> scores = statistics.final_scores(curves)
  >>> scores["score"].tolist()
  [1.0, 3.0, 2.0, 4.0]
  >>> statistics.aggregate(scores, "mean")["value"].tolist()
  [2.0, 3.0]
  >>> statistics.performance_profile(scores, thresholds=[2.5])["share"].tolist()
  [0.5, 0.5]
  >>> statistics.sample_efficiency(curves, "mean")["value"].tolist()  # of each agent at steps 0 and 10
  [0.0, 2.0, 0.0, 3.0]
  >>> runs = statistics.scores_of(scores)
  >>> float(statistics.probability_of_improvement(runs["b"], runs["a"]).value)  # b wins three of four pairs
  0.75
  >>> float(statistics.improvement([np.array([2.0, 4.0])], [np.array([1.0, 3.0])]))
  0.75
  >>> tasks = [np.array([0.0, 1.0, 3.0, 20.0])]
  >>> float(statistics.mean(tasks)), float(statistics.interquartile_mean(tasks))  # of one task with four runs
  (6.0, 2.0)
  >>> estimate = statistics.bootstrap(statistics.mean, tasks)
  >>> bool(0 < estimate.low < estimate.value < estimate.high < 20)
  True
  >>> center, half_width = statistics.interval([1.0, 3.0])
  >>> center, round(half_width, 2)  # Student's t of one degree of freedom
  (2.0, 12.71)
  >>> statistics.mean_band(np.array([[1.0, 3.0], [2.0, 2.0]])).tolist()  # mean, low and high at two times
  [[2.0, 2.0], [1.0, 2.0], [3.0, 2.0]]
"""

from feelgood.statistics.estimates import (
    STATISTICS,
    Estimate,
    Layout,
    aggregate,
    bootstrap,
    check_runs,
    diverged,
    final_scores,
    finite_scores,
    improvement,
    interquartile_mean,
    interval,
    layout,
    mean,
    mean_band,
    performance_profile,
    probability_of_improvement,
    sample_efficiency,
    scores_of,
)

__all__ = [
    "STATISTICS",
    "Estimate",
    "Layout",
    "aggregate",
    "bootstrap",
    "check_runs",
    "diverged",
    "final_scores",
    "finite_scores",
    "improvement",
    "interquartile_mean",
    "interval",
    "layout",
    "mean",
    "mean_band",
    "performance_profile",
    "probability_of_improvement",
    "sample_efficiency",
    "scores_of",
]
