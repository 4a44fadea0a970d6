"""Nothing is told before the records that it depends on are durable."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from stoker.errors import StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.dispatcher.actions import Action, EndSession, Send
from stoker.service.dispatcher.commits import journal_gate
from stoker.service.dispatcher.commits.journal_gate import JournalGate
from stoker.service.journal import JournalHistory

SENDS: list[Action] = [Send(1, m.ClientClosed()), Send(2, m.ClientClosed()), EndSession(1)]


class FakeJournal:
    """A journal whose units become durable when the test says so, from another thread."""

    def __init__(self, durable: Callable[[int], None], failed: Callable[[StokerError], None]):
        self.units: list[bytes] = []
        self.durable_position = 0
        self.closed = False
        self._durable, self._failed = durable, failed

    @property
    def position(self) -> int:
        return len(self.units)

    def read(self) -> JournalHistory:
        return JournalHistory([], [])

    def append(self, unit: bytes) -> int:
        self.units.append(unit)
        return self.position

    def commit(self, position: int) -> None:
        self.durable_position = position
        in_thread(self._durable, position)

    def fail(self) -> None:
        in_thread(self._failed, UnavailableError("the disk is full"))

    def close(self, timeout: float) -> None:
        self.closed = True


def in_thread(function, *arguments) -> None:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


class Gate:
    """A gate with a fake journal, and what it has let through."""

    def __init__(self, monkeypatch) -> None:
        self.executed: list[object] = []
        self.failures: list[Exception] = []
        self.gate = JournalGate()

        def open_fake(work_dir, compact, *, durable, failed, clock):
            self.journal = FakeJournal(durable, failed)
            return self.journal

        monkeypatch.setattr(journal_gate, "open_journal", open_fake)
        assert self.gate.open("directory", asyncio.get_running_loop()) is None
        self.gate.watch(self.executed.append, self.failures.append)

    async def settled(self) -> list[object]:
        await asyncio.sleep(0)  # callbacks of other threads
        return self.executed


def run(test) -> None:
    asyncio.run(test())


def test_actions_wait_for_their_records_in_order(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"one", [SENDS[0]])
        gate.gate.pass_on(b"two", [SENDS[1]])
        gate.gate.pass_on(b"", [SENDS[2]])
        assert gate.journal.units == [b"one", b"two"]
        assert await gate.settled() == []
        gate.journal.commit(1)
        assert await gate.settled() == SENDS[:1]
        gate.journal.commit(2)
        assert await gate.settled() == SENDS

    run(test)


def test_actions_without_open_records_are_executed_at_once(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"", SENDS[:1])
        assert gate.executed == SENDS[:1]
        gate.gate.pass_on(b"one", [])
        gate.journal.commit(1)
        gate.gate.pass_on(b"", SENDS[1:])
        assert gate.executed == SENDS

    run(test)


def test_a_reply_waits_for_all_records_before(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"one", [])
        reply = asyncio.ensure_future(gate.gate.durable())
        await gate.settled()
        assert not reply.done()
        gate.journal.commit(1)
        await reply
        await gate.gate.durable()

    run(test)


def test_after_a_failure_nothing_is_let_through(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"one", [SENDS[0]])
        reply = asyncio.ensure_future(gate.gate.durable())
        await gate.settled()
        gate.journal.fail()
        await gate.settled()
        assert [str(error) for error in gate.failures] == ["the disk is full"]
        gate.gate.abandon()
        gate.journal.commit(1)
        gate.gate.pass_on(b"two", [SENDS[1]])
        with pytest.raises(UnavailableError, match="the dispatcher stops"):
            await reply
        with pytest.raises(UnavailableError, match="the dispatcher stops"):
            await gate.gate.durable()
        assert await gate.settled() == []
        assert gate.journal.units == [b"one"]

    run(test)


def test_a_failure_before_the_callbacks_are_set_is_reported(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate._failed = gate.gate._keep_failure
        gate.journal.fail()
        await gate.settled()
        failures: list[Exception] = []
        gate.gate.watch(lambda _: None, failures.append)
        assert len(failures) == 1

    run(test)


def test_closing_waits_for_the_last_records(monkeypatch):
    async def test() -> None:
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"one", SENDS)
        closing = asyncio.ensure_future(gate.gate.close())
        await gate.settled()
        assert not gate.journal.closed
        gate.journal.commit(1)
        await closing
        assert gate.journal.closed
        assert gate.executed == SENDS

    run(test)


def test_a_hanging_journal_does_not_hold_the_end(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr(journal_gate, "FAREWELL_SECONDS", 0.01)
        gate = Gate(monkeypatch)
        gate.gate.pass_on(b"one", SENDS)
        await gate.gate.close()
        assert gate.journal.closed
        assert gate.executed == []

    run(test)


def test_without_a_journal_nothing_waits():
    async def test() -> None:
        gate = JournalGate()
        executed: list[object] = []
        gate.watch(executed.append, lambda _: None)
        gate.pass_on(b"", SENDS)
        await gate.durable()
        await gate.close()
        assert executed == SENDS

    run(test)
