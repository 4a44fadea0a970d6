"""The simulation finds bugs of the kinds that it is there for."""

import pytest

from tests.simulation.__main__ import check
from tests.simulation.planted_bugs import NAMES, planted

SEEDS = 1000
"""Seeds within which each bug must be found. Most are found by one of the first hundred."""


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(name):
        assert any(check(seed)[0] for seed in range(SEEDS))
