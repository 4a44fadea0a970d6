"""The simulation finds bugs of the kinds that it is there for."""

import pytest

from tests.simulation import __main__, rounds
from tests.simulation.planted_bugs import NAMES, OF_ROUNDS, planted

SEEDS = 1000
"""Seeds within which each bug must be found. Most are found by one of the first hundred."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_is_found(name: str) -> None:
    check = rounds.check if name in OF_ROUNDS else __main__.check
    with planted(name):
        assert any(check(seed)[0] for seed in range(SEEDS))
