"""The simulation finds bugs of the kinds that it is there for."""

import pytest

from tests.simulation.families import POSITIONS, READS, ROUNDS
from tests.simulation.planted_bugs import NAMES, OF_POSITIONS, OF_ROUNDS, planted

SEEDS = 1000
"""Seeds within which each bug must be found. Most are found by one of the first hundred."""

POSITION_SEEDS = 400
"""The same for the bugs of deterministic epochs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_is_found(name: str) -> None:
    family, seeds = ROUNDS if name in OF_ROUNDS else READS, SEEDS
    if name in OF_POSITIONS:
        family, seeds = POSITIONS, POSITION_SEEDS
    with planted(name):
        assert any(family.check(seed)[0] for seed in range(seeds))
