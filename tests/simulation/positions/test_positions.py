"""Deterministic epochs in the simulation. To repeat a seed that failed:

python -m tests.simulation --positions --first 17
"""

import pytest

from tests.simulation.__main__ import SHOWN, story
from tests.simulation.families import POSITIONS

SEEDS = 2400
FAST = 600
"""Seeds of `make test`; the others run with `make test-slow`."""

BLOCK = 40


@pytest.mark.parametrize(
    "first",
    [
        *range(0, FAST, BLOCK),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(FAST, SEEDS, BLOCK)),
    ],
)
def test_epochs_have_their_order_for_every_seed(first: int) -> None:
    for seed in range(first, first + BLOCK):
        found, _ = POSITIONS.check(seed)
        if found:
            pytest.fail(story(seed, SHOWN, POSITIONS))


def test_runs_of_one_seed_are_equal() -> None:
    first: list[str] = []
    second: list[str] = []
    POSITIONS.run(7, first)
    POSITIONS.run(7, second)
    assert first
    assert first == second
