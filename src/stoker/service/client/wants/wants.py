"""The messages by which a client asks workers for the positions of a deterministic epoch."""

from collections.abc import Iterator

from stoker.errors import UnavailableError
from stoker.service import messages as m
from stoker.service.client.flow.credit import WindowedCredit
from stoker.service.client.flow.flow_control import CONNECTION_BYTES
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.position_order import PositionOrder
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.scheduler import Scheduler
from stoker.wire import frames as f

STRANDED_SECONDS = 30.0
"""Time without any worker, after the loss of one, until a client gives up."""

_NO_LIMIT = 1 << 62


class Wants(WindowedCredit):
    """Asks workers for positions, in place of granting credit for what they compute.

    A `Want` is sent with a new turn, when a worker may have sent all that its bytes allow, and when
    the user waits for a position of that worker: the position passes all limits then.

    Args:
        share: the positions of the consumer.
        buffer_bytes: the bytes that are asked for and not consumed, at most.
        max_outstanding_requests: the number of such elements, at most; ``None`` without a limit.

    Attributes:
        order: the elements that have arrived.
        scheduler: the elements that are asked of each worker.
    """

    def __init__(
        self, share: EpochShare, buffer_bytes: int, max_outstanding_requests: int | None
    ) -> None:
        super().__init__(buffer_bytes)
        self.order = PositionOrder(share)
        self.scheduler = Scheduler(self.order, buffer_bytes, max_outstanding_requests)
        self._share = share
        self._most = max_outstanding_requests
        self._joining: list[int] = []
        # Task → the needed position, and the consumed bytes of the task, in its latest message.
        self._said: dict[int, tuple[int, int]] = {}
        self._head = 0
        self._waits_since: float | None = None
        self._planned_at = 0
        self._last_loss = ""
        self._stranded_since: float | None = None
        self.length_known(share.total)

    # ── connections ───────────────────────────────────────────────────────────────────────────────
    def message(self, task_id: int, consumed: int) -> None:
        """Return ``None``: `due_messages` are sent instead."""

    def connected(self, task_id: int, max_bytes: int = CONNECTION_BYTES) -> None:
        """Record a worker that can be asked from the next `due_messages` on."""
        self._joining.append(task_id)

    def disconnected(self, task_id: int) -> list[int]:
        """Record that nothing more arrives of a task: others are asked for what was asked of it."""
        if task_id in self._joining:
            self._joining.remove(task_id)
        self.scheduler.lost(task_id)
        self._said.pop(task_id, None)
        return []

    def lost(self, lost: m.TaskLost) -> str:
        """Record the loss of a worker; return what to log."""
        self._last_loss = f"worker {lost.worker} was lost: {lost.reason}"
        return f"{self._last_loss}. Other workers compute what was asked of it"

    def stranded(self, now: float, workers_left: bool) -> UnavailableError | None:
        """Return the error of a client that no worker is left for; ``None`` to wait on."""
        if workers_left or not self._last_loss:
            self._stranded_since = None
            return None
        if self._stranded_since is None:
            self._stranded_since = now
        if now - self._stranded_since < STRANDED_SECONDS:
            return None
        return UnavailableError(
            f"no worker is left to read from, and none has come for {STRANDED_SECONDS:g} s; the "
            f"last {self._last_loss}. Start workers, and go on from a state of this iterator"
        )

    def length_known(self, total: int | None) -> None:
        """Set the number of positions of the epoch, which the dispatcher knows."""
        if total is not None:
            self.order.length = self._share.length(total)

    # ── elements ──────────────────────────────────────────────────────────────────────────────────
    def due(self, task_id: int, positions: int, nbytes: int) -> bool:
        """Return False: `due_messages` acknowledges what is consumed."""
        return False

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        """Return False, as `due`."""
        return False

    def received(self, task_id: int, positions: int, waited: float) -> None:
        """Do nothing: `arrived` has the elements."""

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        """Return nothing, as `due`."""
        return []

    @property
    def window(self) -> int:
        """The elements that are asked for or have arrived, and are not consumed."""
        return max(1, self.scheduler.asked.count - self.order.needed)

    def arrived(self, chunk: ReceivedChunk, now: float) -> None:
        """Record a chunk that was put into the order."""
        if chunk.task_id in self.scheduler.workers:
            spans = self.order.spans(chunk)
            self.scheduler.arrived(chunk.task_id, spans, chunk.nbytes, now)

    def loads(self, task_id: int, loading: bool) -> None:
        """Record whether a worker still loads the functions of the dataset."""
        worker = self.scheduler.workers.get(task_id)
        if worker is not None:
            worker.loading = loading

    def skip(self, elements: int) -> tuple[int, int]:
        """Pass elements without yielding them; return as `PositionOrder.skip`."""
        found = self.order.skip(elements)
        self.scheduler.skipped(self.order.next)
        return found

    # ── messages ──────────────────────────────────────────────────────────────────────────────────
    def after_read(self, now: float) -> Iterator[tuple[int, f.Want]]:
        """Yield the messages that are due after the user has taken a chunk, or found none."""
        # Planning for each small chunk would cost the user's thread as much as the chunk.
        if self.order.waits or (self.scheduler.blocked and self._has_consumed_enough):
            yield from self.due_messages(now)
        elif self._waits_since is not None:
            self._waits_since = None

    @property
    def _has_consumed_enough(self) -> bool:
        return 4 * (self.order.needed - self._planned_at) >= self.window

    def due_messages(self, now: float) -> Iterator[tuple[int, f.Want]]:
        """Yield the messages to workers that are due, by task."""
        for task_id in self._joining:
            self.scheduler.joined(task_id, now)
        self._joining.clear()
        if self.order.length is None:
            return
        self._doubt_late(now)
        asked: dict[int, list[f.Positions]] = {}
        for task_id, (start, stop) in self.scheduler.plan(now):
            asked.setdefault(task_id, []).append(self._share.positions(start, stop))
        self._planned_at = self.order.needed
        awaited = self.scheduler.awaited if self.order.waits else None
        for task_id, worker in self.scheduler.workers.items():
            cancelled, worker.cancelled = worker.cancelled, []
            ranges = asked.get(task_id, [])
            if ranges or cancelled or self._must_acknowledge(task_id, task_id == awaited):
                yield task_id, self._want(task_id, ranges, cancelled)

    def _doubt_late(self, now: float) -> None:
        """Have other workers asked for what the user waits for, if that is late."""
        if not self.order.waits:
            self._waits_since = None
            return
        # The time since the user waits, or since the first missing element has been that.
        if self._waits_since is None or self._head != self.order.head:
            self._waits_since, self._head = now, self.order.head
        self.scheduler.doubt_late(self._waits_since, now)

    def _must_acknowledge(self, task_id: int, awaited: bool) -> bool:
        said = self._said.get(task_id)
        if said is None:
            return False
        needed, consumed = said
        if awaited and needed != self.order.needed:
            return True
        # A worker stops when it has sent all bytes that it may send.
        return 4 * (self.order.consumed_bytes.get(task_id, 0) - consumed) >= self._share_bytes

    @property
    def _share_bytes(self) -> int:
        return max(1, self._buffer_bytes // max(1, len(self.scheduler.workers)))

    def _want(
        self, task_id: int, ranges: list[f.Positions], cancelled: list[tuple[int, int]]
    ) -> f.Want:
        needed = self.order.needed
        self._said[task_id] = needed, self.order.consumed_bytes.get(task_id, 0)
        limit = _NO_LIMIT if self._most is None else self._share.position(needed + self._most)
        return f.Want(
            self._share.position(needed),
            limit,
            self._share_bytes,
            ranges,
            [self._share.positions(*span) for span in cancelled],
        )
