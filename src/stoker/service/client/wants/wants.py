"""The `Want` messages of a client that reads a deterministic epoch."""

from dataclasses import dataclass, field

from stoker.dataset.tree.splits import ENDLESS
from stoker.service import messages as m
from stoker.service.client.flow.consumption import Consumption
from stoker.service.client.flow.grants import Grants
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.position_order import PositionOrder
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.scheduler import Scheduler
from stoker.service.client.wants.spans import Span
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.task_evidence import TaskEvidence
from stoker.wire import frames as f

REMIND_SECONDS = 0.1
"""Wait for an element after which all workers are notified which element is needed next."""


def new_wants(
    parameters: m.JobParameters,
    share: EpochShare | None,
    buffer_bytes: int,
    max_outstanding_requests: int | None,
) -> "Wants | None":
    """Return the wants of a deterministic epoch; ``None`` for a job that is read otherwise."""
    if parameters.processing_mode is not ShardingPolicy.DETERMINISTIC:
        return None
    return Wants(share or EpochShare(), buffer_bytes, max_outstanding_requests)


@dataclass
class _Known:
    """What a worker knows of its reader.

    Attributes:
        turns: those that it is not asked for yet.
        needed: the element that is needed next.
        most: bytes that the worker keeps sent and not consumed, at most.
        bytes: those consumed of its elements.
        arrived: the bytes that it has sent on all connections.
        out_of_turn: it was asked for elements before others, and may compute these first.
    """

    most: int
    bytes: int
    arrived: int
    turns: list[Span] = field(default_factory=list)
    needed: int = -1
    out_of_turn: bool = False


class Wants(Grants):
    """Asks workers for the elements of a deterministic epoch.

    A worker is sent a message only for a new turn, for elements that it need not compute any more,
    when a quarter of its bytes is consumed, and if it does not know that the user waits for it.

    Args:
        share: the positions of this consumer.
        buffer_bytes: bytes sent and not consumed, over all workers: each worker may exceed its part
            by one element.
        max_outstanding_requests: elements that may be outstanding; ``None`` without a limit.

    Attributes:
        order: the elements that have arrived.
        scheduler: the elements that are asked of workers.
    """

    by_frame = False

    def __init__(
        self, share: EpochShare, buffer_bytes: int, max_outstanding_requests: int | None
    ) -> None:
        self.order = PositionOrder(share)
        self.scheduler = Scheduler(self.order, buffer_bytes, max_outstanding_requests)
        self._buffer_bytes = buffer_bytes
        self._most = max_outstanding_requests
        self._known: dict[int, _Known] = {}
        self._arrived: dict[int, int] = {}
        self._changed = False
        self._planned_at = 0
        self._missing: tuple[int, float] | None = None  # the element, and since when
        self._owner: int | None = None  # the task that was asked for it
        self.begin_epoch(share.total)

    # ── the epoch ─────────────────────────────────────────────────────────────────────────────────
    def begin_epoch(self, positions: int | None) -> None:
        """Record the number of positions of the whole epoch, which a dispatcher may not repeat."""
        if positions is not None:
            self.order.length = self.order.share.length(positions)
            self._changed = True

    def skip(self, elements: int, consumption: Consumption) -> int:
        """Skip elements, which workers need not compute; the current chunk is consumed.

        Returns:
            The number of elements skipped, less than `elements` only at the end; all of them while
            the length is unknown.
        """
        skipped, dropped = self.order.skip(elements)
        consumption.outstanding -= dropped
        self.scheduler.skipped(self.order.next)
        self._changed = True
        return skipped

    @property
    def position(self) -> int:
        """The position of the first element that the user has not consumed."""
        return self.order.share.position(self.order.needed)

    @property
    def counts(self) -> dict[str, int]:
        """Totals for the statistics."""
        return {"elements_asked_again": self.scheduler.asked_again}

    @property
    def awaited(self) -> int | None:
        """The task that was asked for the first element that is missing."""
        return self.scheduler.awaited

    @property
    def window(self) -> int:
        return max(1, self.scheduler.asked.count - self.order.needed)

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def connected(self, task_id: int, max_bytes: int) -> None:
        self.disconnected(task_id)
        self.scheduler.joined(task_id)
        # What was sent on earlier connections is no concern of the worker any more.
        self._known[task_id] = _Known(
            max_bytes or self._buffer_bytes,
            self.order.consumed_bytes.get(task_id, 0),
            self._arrived.get(task_id, 0),
        )

    def disconnected(self, task_id: int) -> list[int]:
        self.scheduler.lost(task_id)
        self._known.pop(task_id, None)
        self._changed = True
        return []

    def arrived(self, chunk: ReceivedChunk, now: float) -> None:
        """Record elements that a worker has sent, after `PositionOrder.put`."""
        task_id = chunk.task_id
        self._arrived[task_id] = self._arrived.get(task_id, 0) + chunk.nbytes
        if task_id in self._known:
            self.scheduler.arrived(task_id, self.order.spans(chunk), chunk.nbytes, now)
            self._changed = self._changed or self.scheduler.may_plan(task_id)

    def reported(self, task_id: int, evidence: TaskEvidence | None) -> None:
        worker = self.scheduler.workers.get(task_id)
        if worker is not None and evidence is not None:
            worker.loading = evidence.loading is not None

    def due(self, task_id: int, positions: int, nbytes: int) -> bool:
        return True

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        known = self._known.get(task_id)
        if known is None:
            return []
        consumed = self.order.consumed_bytes.get(task_id, 0) - known.bytes
        return [task_id] if 4 * consumed >= self._bytes(known) else []

    # ── messages ──────────────────────────────────────────────────────────────────────────────────
    def due_tasks(self, now: float) -> list[int]:
        """Return the tasks whose workers must be sent a message."""
        if self.order.waits:
            return self._while_waiting(now)
        self._missing = None
        # On the thread of the user, which takes elements that are here, only if workers could rest.
        freed = self.order.needed - self._planned_at
        if not (self._changed or (self.scheduler.blocked and 4 * freed >= self.window)):
            return []
        return self._planned(now)

    def _while_waiting(self, now: float) -> list[int]:
        head = self.order.head
        if self._missing is None or self._missing[0] != head:
            self._missing, self._owner = (head, now), self.awaited
        since = self._missing[1]
        late = self.scheduler.doubt_late(since, now)
        # What the user has consumed since makes room, and matters only if there was none.
        moved = self.scheduler.blocked and self.order.needed != self._planned_at
        due: list[int] = []
        if late or moved or self._changed:
            due, self._owner = self._planned(now), self.awaited
        if now - since >= REMIND_SECONDS:
            # A worker may have no room by what came twice, which only `needed` acknowledges.
            return due + [x for x in self._known if self._is_behind(x)]
        if self._owner is not None and self._must_remind(self._owner):
            due.append(self._owner)
        return due

    def _planned(self, now: float) -> list[int]:
        self._changed = False
        self._planned_at = self.order.needed
        due = list(self.scheduler.cancelling)
        self.scheduler.cancelling.clear()
        for task_id, span in self.scheduler.plan(now):
            known = self._known[task_id]
            wanted = self.scheduler.workers[task_id].wanted
            known.out_of_turn = known.out_of_turn or any(stop > span[1] for _, stop in wanted)
            known.turns.append(span)
            due.append(task_id)
        return due

    def _is_behind(self, task_id: int) -> bool:
        return self._known[task_id].needed != self.order.needed

    def _must_remind(self, task_id: int) -> bool:
        """Return whether a worker may not know that it has the element that is needed next."""
        known = self._known[task_id]
        full = 2 * (self._arrived.get(task_id, 0) - known.bytes) >= self._bytes(known)
        return self._is_behind(task_id) and (full or known.out_of_turn)

    def _bytes(self, known: _Known) -> int:
        """Return the bytes that a worker may have sent and not know to be consumed."""
        return max(1, min(known.most, self._buffer_bytes // max(1, len(self._known))))

    def message(self, task_id: int, consumed: int) -> f.Want:
        share, order, known = self.order.share, self.order, self._known[task_id]
        worker = self.scheduler.workers[task_id]
        limit = ENDLESS if self._most is None else share.position(order.needed + self._most)
        known.needed = order.needed
        known.out_of_turn = known.out_of_turn and bool(known.turns)
        known.bytes = order.consumed_bytes.get(task_id, 0)
        turns, known.turns = known.turns, []
        cancelled, worker.cancelled = worker.cancelled, []
        return f.Want(
            share.position(order.needed),
            limit,
            self._bytes(known),
            [share.positions(*span) for span in turns],
            [share.positions(*span) for span in cancelled],
        )
