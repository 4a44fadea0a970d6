"""What every test needs: the check for leaks, own temporary files, SIGINT, and no terminal."""

import gc
import os
import shutil
import signal
import socket
import tempfile
import uuid
from collections.abc import Iterator
from multiprocessing.util import Finalize

import pytest
from hypothesis import settings

from tests.leaks import DEADLINE, RUN_VARIABLE, leaks_since, open_resources


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of test processes for `-n auto`: tests wait half of their time.

    Each process collects all tests, so that a large machine gains nothing from more than eight.
    """
    return min(8, 2 * (os.cpu_count() or 1))


def pytest_configure() -> None:
    """Handle SIGINT, which a shell lets background jobs ignore, and configure Hypothesis."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # An example takes long where many processes share the cores; tests measure no time.
    settings.register_profile("stoker", deadline=None)
    settings.load_profile("stoker")
    # Each process of pytest-xdist is a run of its own: its folder lies in that of the process which
    # started it, and its mark replaces the inherited one. What another run, or a stoker of the
    # machine, leaves in the common folder is no leak of this.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ[RUN_VARIABLE] = uuid.uuid4().hex
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="stoker-tests-")
    # multiprocessing removes its own folder in it at exit, with priority -100.
    Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=-200)


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collection: a quarter of a short test's CPU time."""
    gc.collect()
    gc.freeze()


def pytest_sessionstart() -> None:
    """Give rich the same colors and width everywhere; pytest has chosen its own before."""
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "dumb"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Port of loopback that refuses connections: the socket bound to it does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


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
