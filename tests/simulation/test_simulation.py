"""Dispatcher, workers and clients on a simulated clock and network, for thousands of seeds.

A failure shows its seed and the messages. To repeat one:

    STOKER_SIM_SEED=17 pytest tests/simulation
"""

import os

import pytest

from tests.simulation.invariants import violations
from tests.simulation.scenario import run

SEEDS = 2400
BLOCK = 40
SHOWN = 600
"""Lines of a trace to show, from its end."""


def _check(seed: int) -> None:
    found = violations(run(seed))
    if found:
        trace = run(seed, tracing=True).world.trace
        shown = [trace[0], "...", *trace[-SHOWN:]] if len(trace) > SHOWN else trace
        pytest.fail("\n".join([f"seed {seed}", *found, "", *shown, f"seed {seed}", *found]))


@pytest.mark.skipif("STOKER_SIM_SEED" in os.environ, reason="one seed was asked for")
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_invariants_hold_for_every_seed(first: int) -> None:
    for seed in range(first, first + BLOCK):
        _check(seed)


@pytest.mark.skipif("STOKER_SIM_SEED" not in os.environ, reason="STOKER_SIM_SEED names no seed")
def test_invariants_hold_for_the_given_seed() -> None:
    _check(int(os.environ["STOKER_SIM_SEED"]))


def test_runs_of_one_seed_are_equal() -> None:
    first, second = (run(7, tracing=True).world.trace for _ in range(2))
    assert first == second
