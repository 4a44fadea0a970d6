"""Holds actions of the dispatcher back until the records that they depend on are durable."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from stoker.errors import StokerError, UnavailableError
from stoker.service.dispatcher.actions import Action
from stoker.service.dispatcher.state.snapshot import compact, rebuild
from stoker.service.dispatcher.state.state import State
from stoker.service.journal import Journal, open_journal
from stoker.service.process.clock import CLOCK, Clock

logger = logging.getLogger("stoker.dispatcher")

FAREWELL_SECONDS = 5.0
"""Longest time that a dispatcher that stops, or fails to start, waits for its journal."""


# The records of a call of the logic are a unit: no state lies between two records of a decision.
# (docs/decisions/042)
class JournalGate:
    """The journal, if there is one, and the actions that wait for it; use it on the loop.

    Attributes:
        journaled: there is a journal.
    """

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._waiting: deque[tuple[int, Action | asyncio.Future[None]]] = deque()
        self._execute: Callable[[Action], None] = lambda _: None
        self._failed: Callable[[Exception], None] = self._keep_failure
        self._failure: Exception | None = None
        self._abandoned = False

    def open(
        self, work_dir: str, loop: asyncio.AbstractEventLoop, clock: Clock = CLOCK
    ) -> State | None:
        """Open the journal; from any thread, before other methods.

        Args:
            work_dir: as in `DispatcherConfig`.
            loop: the loop of all other methods.
            clock: as for `open_journal`.

        Returns:
            The state to continue; ``None`` if the journal is new.

        Raises:
            StokerError: if the journal cannot be used.
        """
        self._journal = open_journal(
            work_dir,
            compact,
            durable=lambda _: _call_soon(loop, self._release),
            failed=lambda error: _call_soon(loop, self._journal_failed, error),
            clock=clock,
        )
        try:
            history = self._journal.read()
            state = rebuild(
                history.snapshot, history.units, f"the journal in `work_dir` {work_dir}"
            )
        except BaseException:
            self._journal.close(FAREWELL_SECONDS)
            raise
        # A journal without units has no `Booted`.
        return state if state.history.journal_id else None

    @property
    def journaled(self) -> bool:
        """True if there is a journal."""
        return self._journal is not None

    def watch(self, execute: Callable[[Action], None], failed: Callable[[Exception], None]) -> None:
        """Set the callbacks.

        Args:
            execute: called with each action when it may be executed, in their order.
            failed: called once if the journal fails: the state is ahead of it.
        """
        self._execute, self._failed = execute, failed
        if self._failure is not None:
            failed(self._failure)

    def pass_on(self, unit: bytes, actions: list[Action]) -> None:
        """Store a unit, and execute actions when it and all before are durable."""
        if self._abandoned:
            return
        self._store(unit)
        position = self._open_position()
        for action in actions:
            if position is None:
                self._execute(action)
            else:
                self._waiting.append((position, action))

    async def durable(self) -> None:
        """Wait until all units stored until now are durable.

        Raises:
            UnavailableError: if the journal fails, or the gate is closed, before.
        """
        if self._abandoned:
            raise UnavailableError("the dispatcher stops")
        position = self._open_position()
        if position is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((position, future))
            await future

    def abandon(self) -> None:
        """Execute and store nothing more: the state is in doubt, or ahead of the journal.

        Without a journal it has no effect: clients are told of the end.
        """
        self._abandoned = self.journaled
        waiting, self._waiting = self._waiting, deque()
        for _, each in waiting:
            # A caller that waits no more has cancelled its future.
            if isinstance(each, asyncio.Future) and not each.done():
                each.set_exception(UnavailableError("the dispatcher stops"))

    async def close(self) -> None:
        """Close the journal; idempotent."""
        if self._journal is not None:
            # A journal that fails reports its error itself; the dispatcher ends in any case.
            with suppress(StokerError, TimeoutError):
                await asyncio.wait_for(self.durable(), FAREWELL_SECONDS)
            await asyncio.to_thread(self._journal.close, FAREWELL_SECONDS)

    def _store(self, unit: bytes) -> None:
        if unit and self._journal is not None:
            self._journal.append(unit)

    def _open_position(self) -> int | None:
        """Return the position that must be durable before the next action; ``None`` if all is."""
        if self._journal is None:
            return None
        position = self._journal.position
        # Actions keep their order, also actions that depend on no record.
        return position if self._waiting or position > self._journal.durable_position else None

    def _release(self) -> None:
        """Execute the actions whose records are durable, in order."""
        assert self._journal is not None
        durable = self._journal.durable_position
        while self._waiting and self._waiting[0][0] <= durable:
            _, each = self._waiting.popleft()
            if not isinstance(each, asyncio.Future):
                self._execute(each)
            elif not each.done():
                each.set_result(None)

    def _journal_failed(self, error: Exception) -> None:
        self._failed(error)

    def _keep_failure(self, error: Exception) -> None:
        self._failure = error


def _call_soon(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object
) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, *arguments)
