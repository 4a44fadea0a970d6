"""Calls of the user functions of a task: recorded, run alone, or replaced by an error."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from stoker.dataset.positions.position_log import Place, PlaceOf, positions_of
from stoker.dataset.streams.calls.call_ranges import (
    CallRange,
    PoisonedCall,
    PositionSet,
    digest_of,
    merged,
    stream_of,
)
from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.errors import PoisonedElementError

_NO_LIMIT = 1 << 62

_Ranges: TypeAlias = Sequence[CallRange]
_Poisoned: TypeAlias = Sequence[PoisonedCall]


class _Marks:
    """The positions of a stream with special calls.

    Attributes:
        traced: calls that are recorded singly.
        suspects: calls that run alone.
        poisoned: calls that end the process, by index and digest of the element.
    """

    def __init__(
        self, traced: _Ranges, suspects: _Ranges, poisoned: Sequence[PoisonedCall]
    ) -> None:
        at_poisoned = [CallRange(x.stream, x.index, x.index + 1) for x in poisoned]
        self.traced = PositionSet(merged([*traced, *suspects, *at_poisoned]))
        self.suspects = PositionSet(merged(suspects))
        self.poisoned = {(x.index, x.digest): x for x in poisoned}
        self.poisoned_indices = {x.index for x in poisoned}


class TaskCalls:
    """The calls of a task.

    Args:
        recorder: of the process.
        task_id: the task.
        traced: calls that were in flight when a worker died: recorded singly.
        suspects: calls that were in flight when two workers died: run alone.
        poisoned: calls that are replaced by a `PoisonedElementError`.

    Attributes:
        isolates: suspects run alone; ends if a call in flight does not end for long.
    """

    def __init__(
        self,
        recorder: CallRecorder,
        task_id: int,
        traced: _Ranges = (),
        suspects: _Ranges = (),
        poisoned: _Poisoned = (),
    ) -> None:
        self.recorder = recorder
        self.task_id = task_id
        self.isolates = True
        streams = {x.stream for x in (*traced, *suspects)} | {x.stream for x in poisoned}
        self._marks = {
            stream: _Marks(
                [x for x in traced if x.stream == stream],
                [x for x in suspects if x.stream == stream],
                [x for x in poisoned if x.stream == stream],
            )
            for stream in streams
        }

    def stream(
        self, number: int, epoch: Sequence[int], place: PlaceOf | None = None
    ) -> "StreamCalls":
        """Return the calls of the function of a node in an epoch.

        Args:
            number: of the node.
            epoch: of the node.
            place: returns the place in the whole epoch of an element by its number in the stream;
                ``None`` if the numbers are equal.
        """
        stream = stream_of(number, epoch)
        return StreamCalls(self, stream, self._marks.get(stream), place)


class StreamCalls:
    """The calls of a function in an epoch of a task; used from any thread.

    Attributes:
        recorder: of the process.
        stream: as in `CallRange`.
        end: removes the calls of a slot.
    """

    def __init__(
        self, task: TaskCalls, stream: int, marks: _Marks | None, place: PlaceOf | None
    ) -> None:
        self._task = task
        self.recorder = task.recorder
        self._task_id = task.task_id
        self.stream = stream
        self.end = task.recorder.end
        self._marks = marks
        self._place = place

    def limit(self, index: int) -> int:
        """Return the number of calls from `index` on that may be recorded together."""
        if self._marks is None:
            return _NO_LIMIT
        place = Place(index, 1, _NO_LIMIT) if self._place is None else self._place(index)
        if place is None:  # unknown until the element is read
            return 1
        distance = self._marks.traced.distance(place.position)
        if distance is None:
            return place.left
        return max(1, min(place.left, -(-distance // place.step)))

    def begin(self, first: int, stop: int, element: Any) -> int:
        """Record calls; return their slot for `end`.

        Args:
            first: the number of the first element.
            stop: the number after the last element.
            element: the first element.

        Raises:
            PoisonedElementError: instead of a call that ends the process.
        """
        if self._place is not None:
            first, stop = _range_in_whole(self._place, first, stop)
        if self._marks is not None:
            return self._begin_marked(self._marks, first, stop, element)
        return self.recorder.begin(self._task_id, self.stream, first, stop)

    def _begin_marked(self, marks: _Marks, first: int, stop: int, element: Any) -> int:
        if first in marks.poisoned_indices:
            # Its digest is compared since inputs may come in another order than in a dead process.
            poisoned = marks.poisoned.get((first, digest_of(element)))
            if poisoned is not None:
                raise PoisonedElementError(
                    "worker processes die when they call this function for element "
                    f"{first} of its input, which is skipped; the last one: {poisoned.how}"
                )
        if self._task.isolates and first in marks.suspects:
            slot, self._task.isolates = self.recorder.begin_alone(
                self._task_id, self.stream, first, digest_of(element)
            )
            return slot
        return self.recorder.begin(self._task_id, self.stream, first, stop)


def _range_in_whole(place_of: PlaceOf, first: int, stop: int) -> tuple[int, int]:
    """Return the first position and that after the last in the whole epoch of some elements.

    Other elements may be between: after a death they are recorded singly, too.
    """
    ranges = list(positions_of(place_of, first, stop))
    return min(each[0] for each in ranges), max(each[-1] for each in ranges) + 1


@contextmanager
def recorded_unplaced(task: TaskCalls | None) -> Iterator[None]:
    """Record code that has no position while the ``with`` block runs."""
    if task is None:
        yield
    else:
        with task.recorder.slot(task.recorder.begin_unplaced(task.task_id)):
            yield


def unplaced(task: TaskCalls | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that records the calls of `function`, which have no position."""
    # As a decorator a context manager is entered anew for each call.
    return function if task is None else recorded_unplaced(task)(function)
