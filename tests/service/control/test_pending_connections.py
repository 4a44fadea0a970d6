"""Connections without a session, on an event loop of the test."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from stoker.service.control.pending_connections import PendingConnections
from tests.manual_clock import ManualClock


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop of its own, whose time passes at once."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        clock = ManualClock()
        with clock.running(), asyncio.Runner(loop_factory=clock.new_event_loop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run


class _Connections:
    """Pending connections by name, and those that were closed."""

    def __init__(self, limit: int = 3) -> None:
        self.pending = PendingConnections(limit)
        self.closed: list[str] = []
        self._closing = asyncio.Event()

    def open(self, *names: str) -> None:
        for name in names:
            self.pending.opened(name, functools.partial(self._close, name))

    def _close(self, name: str, reason: str) -> None:
        self.closed.append(name)
        self._closing.set()

    async def wait_closed(self, count: int) -> None:
        """Wait until `count` are closed."""
        while len(self.closed) < count:
            await self._closing.wait()
            self._closing.clear()


@on_a_loop
async def test_oldest_connection_is_closed_for_one_too_many():
    found = _Connections()
    found.open("a", "b", "c", "d")
    assert found.closed == ["a"]
    found.pending.closed("b")
    found.open("e")
    assert found.closed == ["a"]


@on_a_loop
async def test_connections_with_a_session_do_not_count():
    found = _Connections()
    found.open("a")
    with found.pending.session("a"):
        with found.pending.session("a"):
            found.open("b", "c", "d")
        found.open("e")
        assert found.closed == ["b"]
    assert found.closed == ["b", "c"]
    assert [name for name in "abcde" if name in found.pending] == ["a", "d", "e"]
    found.open("f", "g")
    assert found.closed == ["b", "c", "d", "e"]


@on_a_loop
async def test_connection_that_ends_in_a_session_is_forgotten():
    found = _Connections()
    found.open("a")
    with found.pending.session("a"):
        found.pending.closed("a")
    assert "a" not in found.pending


@on_a_loop
async def test_idle_connections_are_closed():
    found = _Connections()
    found.open("a", "calls", "session")
    with found.pending.call("calls"), found.pending.session("session"):
        await found.wait_closed(1)
        assert found.closed == ["a"]
    await found.wait_closed(3)
