"""The paper's games and its table of scores.

According to the paper, its table (`table:atari_score_final`) gives the maximal score of each run, averaged over five
seeds. The authors' released curves contradict this. They cover six of the nine agents on all eight games: the mean of
the *last five* evaluations is within the table's own ± in all 48 cases, half of them within a tenth of it; the mean of
the last ten in 43 cases; the mean of the maxima in 7, and it is typically three times the ± too high. Our tables
therefore give both `max`, the paper's definition, and `last_5`, which its numbers match. `last_10` is the score of the
other studies in this package.
"""

from typing import Any

GAMES = ("alien", "freeway", "gravitar", "hero", "pitfall", "qbert", "solaris", "venture")
"""The paper's games."""


def _by_game(*values: Any) -> dict[str, Any]:
    return dict(zip(GAMES, values, strict=True))


HUMAN: dict[str, float] = _by_game(7128.0, 30.0, 3351.0, 30826.0, 6464.0, 13455.0, 12327.0, 1188.0)
"""Scores of a human player, from the paper's table."""
RANDOM: dict[str, float] = _by_game(228.0, 0.0, 173.0, 1027.0, -229.0, 164.0, 1263.0, 0.0)
"""Scores of random play, from the paper's table."""

# (score, half-width of its 95% confidence interval) after 50 million frames, in the order of the games.
PAPER_SCORES: dict[str, dict[str, tuple[int, int]]] = {
    "iqn": _by_game((1691, 155), (34, 0), (413, 31), (11229, 1098), (-5, 4), (14324, 643), (1082, 258), (3, 3)),
    "bootstrapped_dqn": _by_game(
        (1067, 133), (29, 1), (312, 50), (13538, 696), (-53, 19), (11786, 1474), (923, 383), (12, 12)
    ),
    "c51": _by_game((1878, 1878), (34, 0), (254, 52), (17500, 2170), (-19, 16), (13394, 1500), (303, 191), (31, 31)),
    "prioritized_dqn": _by_game(
        (1799, 202), (23, 10), (149, 37), (14462, 1249), (-46, 16), (9464, 880), (1377, 423), (23, 23)
    ),
    "noisynet_dqn": _by_game(
        (1545, 217), (32, 0), (124, 47), (6003, 1903), (-31, 21), (11046, 1594), (1373, 361), (24, 21)
    ),
    "adam_lmcdqn": _by_game(
        (1772, 188), (33, 0), (799, 34), (11366, 348), (-6, 4), (14628, 498), (938, 189), (1326, 92)
    ),
    "ulmcdqn": _by_game(
        (1999, 687), (34, 0), (697, 64), (15201, 3141), (-3, 2), (14704, 794), (1195, 390), (1132, 195)
    ),
    "fg_lmcdqn": _by_game((2380, 645), (23, 10), (744, 73), (11576, 202), (0, 0), (14674, 436), (735, 132), (1069, 60)),
    "fg_ulmcdqn": _by_game(
        (2030, 446), (34, 0), (844, 312), (14044, 1220), (-9, 9), (14385, 579), (1278, 851), (1198, 198)
    ),
}
"""The paper's table as printed: score and ± by agent and game. (C51's 1878 ± 1878 on Alien looks like a misprint.)"""

AGENTS = tuple(PAPER_SCORES)
"""The agents of the paper's table of scores, in its order."""
