"""A model of the pipeline of a task by position, which computes the turns that it is given."""

import random
from collections import deque
from collections.abc import Callable, Iterator

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, CallRange, PositionSet, digest_of
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from tests.simulation.positions.epoch import CHUNK_POSITIONS, EpochPlan, calls_of


class PositionPipeline:
    """Run one task on the simulated clock: it reads turns ahead, and computes chunk by chunk.

    Args:
        start: the task.
        plan: the epoch.
        rng: generates chunk sizes and times.
        seconds: time to compute a typical element.
        after: schedules an event.
        need_turn: asks for the next turn; `give_turn` answers.
        produced: accepts a chunk and returns whether to continue.
        died: ends the process, with the calls in flight, and the digest if one ran alone.
    """

    def __init__(
        self,
        start: m.TaskStart,
        plan: EpochPlan,
        rng: random.Random,
        seconds: float,
        after: Callable[[float, Callable[[], None]], None],
        need_turn: Callable[[int], None],
        produced: Callable[[int, Chunk], bool],
        died: Callable[[dict[int, list[CallRange]], int], None],
    ) -> None:
        assert start.seed == plan.seed, "a task with draws of its own"
        self.task_id = start.task_id
        self.closed = False
        self._plan, self._rng, self._seconds, self._after = plan, rng, seconds, after
        self._need_turn, self._produced, self._died = need_turn, produced, died
        self._suspects = PositionSet(start.suspects)
        self._replaced = {(x.index, x.digest) for x in start.poisoned}
        self._turns: deque[range] = deque()
        self._asking = self._full = self._idle = False
        self._work = self._run()
        self._after(plan.opening * rng.uniform(0.5, 1.5), self._step)

    def give_turn(self, turn: range) -> None:
        """Answer a request with positions of the epoch."""
        assert self._asking, "a turn that nobody asked for"
        assert len(turn), "a turn without positions"
        self._asking = False
        self._turns.append(turn)
        self._ask()
        if self._idle:
            self._idle = False
            self._after(0, self._step)

    def resume(self) -> None:
        """Continue: there is room again."""
        if self._full:
            self._full = False
            self._after(0, self._step)

    def close(self) -> None:
        """Stop."""
        self.closed = True

    def _ask(self) -> None:
        """Ask for a turn, if fewer positions are read ahead than the pipeline may read."""
        if not self._asking and sum(map(len, self._turns)) < self._plan.ahead:
            self._asking = True
            self._after(0, self._ask_now)

    def _ask_now(self) -> None:
        if not self.closed:
            self._need_turn(self.task_id)

    def _step(self) -> None:
        """Continue until it has to wait for time, a turn or room."""
        if not self.closed:
            wait = next(self._work)
            if wait is not None:
                self._after(wait, self._step)

    def _run(self) -> Iterator[float | None]:
        """Yield seconds to wait, or ``None`` to wait for an event."""
        while True:
            self._ask()
            if not self._turns:
                self._idle = True
                yield None
                continue
            positions = self._take()
            self._ask()
            plan = self._plan
            seconds = self._seconds * sum(map(plan.weight, positions))
            yield seconds * self._rng.uniform(0.5, 1.5)
            if any(self._is_deadly(position) for position in positions):
                self._die(positions)
                yield None
            for chunk in self._chunks(positions):
                if not self._produced(self.task_id, chunk):
                    self._full = True
                    yield None

    def _take(self) -> range:
        """Remove the positions of the next chunk; a suspect is one of its own."""
        turn = self._turns.popleft()
        count = min(len(turn), self._rng.randint(1, CHUNK_POSITIONS))
        suspects = [k for k in range(count) if turn[k] in self._suspects]
        if suspects:
            count = max(1, suspects[0])
        if count < len(turn):
            self._turns.appendleft(turn[count:])
        return turn[:count]

    def _chunks(self, positions: range) -> Iterator[Chunk]:
        """Yield what these positions have: their elements, or errors one by one."""
        plan, first = self._plan, 0
        for k, position in enumerate(positions):
            is_poisoned = position in plan.poisoned
            if not (is_poisoned or position in plan.errors):
                continue
            if first < k:
                yield self._elements(positions[first:k])
            code = "PoisonedElementError" if is_poisoned else "UserFunctionError"
            error = ErrorRecord(code, repr(position))
            yield Chunk([], plan.nbytes(position), error, spans=(positions[k : k + 1],))
            first = k + 1
        if first < len(positions):
            yield self._elements(positions[first:])

    def _elements(self, positions: range) -> Chunk:
        nbytes = sum(map(self._plan.nbytes, positions))
        return Chunk(list(positions), nbytes, spans=(positions,))

    def _is_deadly(self, position: int) -> bool:
        """Return whether the call at a position ends the process: it was not replaced."""
        call = position, digest_of(position)
        return position in self._plan.poisoned and call not in self._replaced

    def _die(self, positions: range) -> None:
        """End the process while calls are in flight: these, and some that were read ahead."""
        alone = NO_DIGEST
        flying = list(positions)
        if positions[0] in self._suspects:
            alone = digest_of(positions[0])
        elif self._turns and self._rng.random() < 0.5:
            ahead = self._turns[0][: self._rng.randint(0, 5)]
            flying += [position for position in ahead if position not in self._suspects]
        self._died({self.task_id: calls_of(flying)}, alone)
