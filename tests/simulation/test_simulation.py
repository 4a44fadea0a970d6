"""Dispatcher, workers and clients on a simulated clock and network, for thousands of seeds.

A failure shows its seed and its story. To repeat one:

    python -m tests.simulation --first 17
"""

import pytest

from tests.simulation.__main__ import SHOWN, story
from tests.simulation.families import READS

SEEDS = 2400
FAST = 480
"""Seeds of `make test`; the others run with `make test-slow`."""

BLOCK = 40


@pytest.mark.parametrize(
    "first",
    [
        *range(0, FAST, BLOCK),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(FAST, SEEDS, BLOCK)),
    ],
)
def test_invariants_hold_for_every_seed(first: int) -> None:
    for seed in range(first, first + BLOCK):
        found, _ = READS.check(seed)
        if found:
            pytest.fail(story(seed, SHOWN, READS))


def test_runs_of_one_seed_are_equal() -> None:
    first: list[str] = []
    second: list[str] = []
    READS.run(7, first)
    READS.run(7, second)
    assert first
    assert first == second
