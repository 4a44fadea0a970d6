"""What every test needs: the check for leaks, and SIGINT as in a terminal."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.leaks import DEADLINE, leaks_since, open_resources


def pytest_configure() -> None:
    """Handle SIGINT, which a shell lets background jobs ignore, and configure Hypothesis."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # An example takes long where many processes share the cores; tests measure no time.
    settings.register_profile("stoker", deadline=None)
    settings.load_profile("stoker")


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaks a thread, descriptor, segment or child process.

    Set up before a test's own fixtures of function scope and torn down after them, so they may
    clean up. Resources of wider fixtures exist already and do not count.
    """
    before = open_resources()
    yield
    if found := leaks_since(before):
        pytest.fail(
            f"left behind {DEADLINE:g} s after the test ended:\n  " + "\n  ".join(found),
            pytrace=False,
        )
