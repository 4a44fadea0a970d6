"""The order of a coordinated read: rounds, each from one worker, the same for all consumers.

The schedule is a sequence of *slots*. In a slot a consumer passes the next run of the task whose
turn it is, and yields its element of that run; so a slot is a round. All consumers derive the same
sequence from the same `RoundsChange` records, whatever the order in which elements and messages
arrive: a task that has ended is left out, as it has given all consumers equally many runs.

A run of a lost task that others have passed, and that did not arrive here, is passed without an
element, so that the consumer *owes* one. It yields it in the next filler slot, which others skip.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from stoker.errors import DataLossError, StokerError
from stoker.service.client.orders.order import Order, ReceivedChunk
from stoker.service.messages import JobParameters, RoundPosition, RoundReached, RoundsChange


def new_schedule(parameters: JobParameters) -> "RoundOrder | None":
    """Return the schedule of a coordinated read; ``None`` for a job that is read otherwise."""
    return None if parameters.num_consumers is None else RoundOrder()


@dataclass
class _TaskRuns:
    """The runs of one task.

    Attributes:
        chunks: those that have arrived and are not passed.
        passed: the number of runs passed; the next is that run.
        missing: runs before it will not arrive.
        ended: no more runs will arrive, and all others have.
        lost: no more runs will arrive, and some may be missing.
    """

    chunks: deque[ReceivedChunk] = field(default_factory=deque)
    passed: int = 0
    missing: int = 0
    ended: bool = False
    lost: bool = False

    @property
    def over(self) -> bool:
        """True if no more runs will arrive."""
        return self.ended or self.lost

    @property
    def received(self) -> int:
        """The number of runs that have arrived or were passed."""
        return self.passed + len(self.chunks)

    def skip(self, run: int) -> list[ReceivedChunk]:
        """Remove and return the chunks of the runs before `run`."""
        skipped = []
        while self.chunks and self.chunks[0].number < run:
            skipped.append(self.chunks.popleft())
        self.passed = run
        return skipped


class RoundOrder(Order):
    """The turns of tasks, which all consumers of a coordinated read derive alike.

    Attributes:
        started: the place of the first element is known.
        slot: the number of slots passed.
        step: the number of them that were no fillers.
        owed: the number of elements that the consumer has yielded less than the others.
        mixed_rounds: the number of steps with an element of another round than that of the others:
            while the consumer owes elements of a lost worker.
        repeated: the number of elements yielded twice, as there were no others.
        skipped_elements: the number of elements that were not yielded.
    """

    def __init__(self) -> None:
        self.slot = self.step = self.owed = 0
        self.mixed_rounds = self.repeated = self.skipped_elements = 0
        self.started = False
        self._leaving: dict[int, int] = {}
        self._over: set[int] = set()
        self._tasks: dict[int, _TaskRuns] = {}
        self._turns: deque[int] = deque()
        self._fillers = 0
        self._changes: deque[RoundsChange] = deque()
        self._number = -1
        self._begun: RoundsChange | None = None
        self._hold = 0
        self._discarded: list[ReceivedChunk] = []
        self._latest: ReceivedChunk | None = None
        self._reported: RoundReached | None = None

    # ── what arrives ──────────────────────────────────────────────────────────────────────────────
    @property
    def empty(self) -> bool:
        return not any(task.chunks for task in self._tasks.values())

    def put(self, chunk: ReceivedChunk) -> int:
        task = self._task(chunk.task_id)
        if chunk.number < task.passed or chunk.task_id in self._over or self._is_last:
            self._discarded.append(chunk)
        else:
            task.chunks.append(chunk)
        return chunk.positions  # those of discarded chunks too, until they are accounted for

    def first_frame(self, task_id: int) -> int:
        """Return the first frame of a task to receive."""
        return self._task(task_id).passed

    def skipped(self, task_id: int, frame: int) -> None:
        """Record that the frames of a task before `frame` will not arrive."""
        self._task(task_id).missing = frame

    def task_ended(self, task_id: int) -> None:
        """Record that all elements of a task have arrived, unless others give some back."""
        self._task(task_id).ended = True
        self._leaving.pop(task_id, None)

    def task_lost(self, task_id: int) -> None:
        """Record that nothing more of a task arrives."""
        self._task(task_id).lost = True
        self._leaving.pop(task_id, None)

    @property
    def to_leave(self) -> list[tuple[int, int]]:
        """The tasks that the client leaves, and the number of frames of each that it reads."""
        return list(self._leaving.items())

    def _task(self, task_id: int) -> _TaskRuns:
        return self._tasks.setdefault(task_id, _TaskRuns())

    # ── the schedule ──────────────────────────────────────────────────────────────────────────────
    def change(self, changes: Sequence[RoundsChange], hold: int, ended: Sequence[int]) -> None:
        """Apply the message `Rounds`."""
        for task_id in ended:
            self.task_ended(task_id)
        for change in changes:
            # The dispatcher repeats changes on a new session.
            if change.number <= self._number:
                continue
            self._number = change.number
            # A change that nobody has reached when the next one was agreed on never begins.
            while self._changes and self._changes[-1].position.slot >= change.position.slot:
                self._changes.pop()
            self._changes.append(change)
            self._leaving = {
                task_id: change.position.runs.get(task_id, 0)
                for task_id in change.left
                if not self._task(task_id).ended
            }
            if not self.started:
                self.started = True
                self.slot, self.step = change.position.slot, change.position.step
        self._hold = hold
        # The dispatcher asks anew, so an equal report is an answer too.
        self._reported = None
        self._begin_due_change()

    def _begin_due_change(self) -> None:
        while self._changes and self._changes[0].position.slot <= self.slot:
            change = self._begun = self._changes.popleft()
            self._turns = deque(change.position.turns)
            self._fillers = change.fillers
            for task_id, runs in change.position.runs.items():
                self._discarded += self._task(task_id).skip(runs)
            self._over = set(change.position.runs) - set(self._turns)
            for task_id, task in self._tasks.items():
                if change.last or task_id in self._over:
                    self._discarded += task.chunks
                    task.chunks.clear()

    def take(self) -> ReceivedChunk | None:
        self._pass_idle_slots()
        task = self._next()
        if task is None:
            return self._repeat() if self._is_last and self.owed else None
        self.mixed_rounds += self.owed > 0
        # A slot that others pass as a filler. (docs/decisions/077)
        if self._fillers:
            self.owed -= 1
        # Kept for `_repeat`, if the others yield more at the end.
        chunk = self._latest = task.chunks.popleft()
        self._pass(task)
        return _with_own_list(chunk)

    def clear(self) -> None:
        for task in self._tasks.values():
            task.chunks.clear()
        self._discarded.clear()
        self._latest = None

    def _pass_idle_slots(self) -> None:
        """Pass the slots in which nothing is yielded: they wait for no user.

        The others may be in step with this consumer, so that its user takes no more until they have
        the elements that workers cannot compute before these are passed.
        """
        while (task := self._next()) is not None:
            if not self._has_next(task):
                self.owed += not self._fillers
            elif self._fillers and not self.owed:
                self._discarded.append(task.chunks.popleft())
            else:
                return
            self._pass(task)

    def _repeat(self) -> ReceivedChunk | None:
        """Return the latest chunk again: the others have yielded more, and no elements are left."""
        if self._latest is None:
            return None
        self.owed -= 1
        self.mixed_rounds += 1
        self.repeated += 1
        return replace(_with_own_list(self._latest), repeated=True)

    def _pass(self, task: _TaskRuns) -> None:
        task.passed += 1
        self.slot += 1
        if self._fillers:
            self._fillers -= 1
        else:
            self.step += 1
        self._turns.rotate(-1)

    def _next(self) -> _TaskRuns | None:
        """Return the task of the next slot; ``None`` if that must wait, or there is none."""
        self._begin_due_change()
        while self._turns and not self._hold:
            task = self._task(self._turns[0])
            if not self._has_passed_all(task, self._turns[0]):
                if self._has_next(task) or task.passed < task.missing:
                    return task
                if task.over and self._changes:
                    return task  # others have passed its runs up to the next change
                if not task.ended:
                    return None
            self._turns.popleft()
        return None

    def _has_passed_all(self, task: _TaskRuns, task_id: int) -> bool:
        """Return whether a task is known to have no more turns before the next change."""
        if not self._changes:
            return False
        return task.passed >= self._changes[0].position.runs.get(task_id, 0)

    @staticmethod
    def _has_next(task: _TaskRuns) -> bool:
        return bool(task.chunks) and task.chunks[0].number == task.passed

    @property
    def _is_last(self) -> bool:
        return self._begun is not None and self._begun.last

    @property
    def error(self) -> StokerError | None:
        """An error that ends the iteration, if there is one."""
        if self._is_last and self.owed and self._latest is None:
            return DataLossError(
                f"{self.owed} elements for this consumer were lost with their workers, and nothing "
                "is left that could take their place"
            )
        return None

    def is_over(self, computed: bool, ended: bool) -> bool:
        """Return whether all elements of the iteration are yielded."""
        return self._is_last and not self.owed

    # ── flow control ──────────────────────────────────────────────────────────────────────────────
    def needed_first(self, task_ids: Collection[int], coming: Callable[[int], int]) -> int | None:
        self._begin_due_change()
        turns = [x for x in self._turns if not self._task(x).over]
        if not self.started or not turns:
            return None
        # The number of turns until the element of a task is neither here nor on its way.
        have = {x: len(self._task(x).chunks) + coming(x) for x in turns}
        needed = min(turns, key=lambda x: have[x])  # the first of those with the least
        return needed if needed in task_ids else None

    # ── reports ───────────────────────────────────────────────────────────────────────────────────
    def take_discarded(self) -> list[ReceivedChunk]:
        """Remove and return the chunks that are not yielded."""
        self._pass_idle_slots()
        discarded, self._discarded = self._discarded, []
        self.skipped_elements += len(discarded)
        return discarded

    @property
    def counts(self) -> dict[str, int]:
        """Totals for the statistics."""
        return {
            "rounds_mixed": self.mixed_rounds,
            "elements_repeated": self.repeated,
            "elements_skipped": self.skipped_elements,
        }

    @property
    def position(self) -> RoundPosition | None:
        """The next slot; ``None`` before the start."""
        if not self.started:
            return None
        self._begin_due_change()
        runs = {task_id: task.passed for task_id, task in self._tasks.items()}
        return RoundPosition(self.slot, list(self._turns), runs, self.step)

    def report(self, ready: bool) -> RoundReached | None:
        """Return what the dispatcher must know and was not sent.

        Args:
            ready: the workers of all tasks answer, so that the consumer can start.
        """
        report = self._report(ready)
        if report == self._reported:
            return None
        self._reported = report
        return report

    def _report(self, ready: bool) -> RoundReached | None:
        position = self.position
        if position is None:
            return RoundReached(0, RoundPosition(), ready=True) if ready else None
        if self._hold:
            if self._reported is not None:  # the position does not change, what arrives does
                return self._reported
            # Of lost tasks the dispatcher needs the runs that arrived anywhere, to count what is
            # owed.
            received = {x: task.received for x, task in self._tasks.items() if task.lost}
            return RoundReached(self._hold, position, received, self.owed, self._is_at_end)
        if self._changes or self._is_last:
            return None
        at_end = self._is_at_end
        # Fillers that were agreed on already pay a part.
        owed = max(0, self.owed - self._fillers)
        if not (at_end or owed):
            return None
        return RoundReached(0, position, {}, owed, at_end)

    @property
    def _is_at_end(self) -> bool:
        """True if no task has turns any more, as far as is known."""
        turns = [self._task(task_id) for task_id in self._turns]
        return not self._changes and all(x.over and not x.chunks for x in turns)

    @property
    def awaited(self) -> int | None:
        """The task of the next slot, if there is one."""
        return self._turns[0] if self._turns else None


def _with_own_list(chunk: ReceivedChunk) -> ReceivedChunk:
    """Return the chunk with a list that its reader may empty (`ready_elements`)."""
    return replace(chunk, elements=list(chunk.elements))
