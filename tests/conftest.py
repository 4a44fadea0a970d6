"""Fixtures every test has: nothing may be left behind."""

from collections.abc import Iterator

import pytest

from tests.leaks import DEADLINE, holdings, leaks_since


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves a thread, descriptor, segment or child process behind.

    Set up before a test's own fixtures of function scope and torn down after them, so they may
    clean up. What wider fixtures hold was there before.
    """
    before = holdings()
    yield
    if found := leaks_since(before):
        pytest.fail(
            f"left behind {DEADLINE:g} s after the test ended:\n  " + "\n  ".join(found),
            pytrace=False,
        )
