"""Coordinated reads in the simulation. To repeat a seed that failed:

python -m tests.simulation --rounds --first 17
"""

import pytest

from tests.simulation.__main__ import SHOWN, story
from tests.simulation.families import ROUNDS

SEEDS = 480
FAST = 120
"""Seeds of `make test`; the others run with `make test-slow`."""

BLOCK = 40


@pytest.mark.parametrize(
    "first",
    [
        *range(0, FAST, BLOCK),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(FAST, SEEDS, BLOCK)),
    ],
)
def test_rounds_are_whole_for_every_seed(first: int) -> None:
    for seed in range(first, first + BLOCK):
        found, _ = ROUNDS.check(seed)
        if found:
            pytest.fail(story(seed, SHOWN, ROUNDS))
