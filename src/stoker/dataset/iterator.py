"""The user's end of an open pipeline."""

import os
import sys
import weakref
from collections import abc
from collections.abc import Callable
from contextlib import suppress
from operator import length_hint
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias

from stoker.dataset.closing import Closing
from stoker.dataset.reports.html_table import Stats
from stoker.dataset.reports.measurements import Measurements
from stoker.dataset.state import IteratorState
from stoker.dataset.streams.failures import forget_locals, hide_own_frames
from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.statistics import Statistics
from stoker.dataset.streams.stream import READ_AHEAD_BYTES, READ_AHEAD_ELEMENTS, Stream
from stoker.errors import FailedPreconditionError, UnimplementedError

if TYPE_CHECKING:
    # Type checkers bring typing_extensions; the default of a TypeVar is in `typing` from 3.13 on.
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

_Read: TypeAlias = Callable[[int, int, bool], list[Any]]


class Iterator(Closing, Generic[T_co]):
    """An epoch of a dataset; created by ``iter(dataset)`` or `Dataset.iterator`.

    Reading may continue after an element whose function raised: the error occupies the position of
    that element. Reading must not continue after Ctrl-C; resume from `state_dict`. Threads and
    connections are released at the end, by `close`, at the end of a ``with`` block, by garbage
    collection and at interpreter exit. In a forked child it raises.

    Example:
        >>> from stoker import Dataset
        >>> with Dataset.range(3).iterator() as iterator:
        ...     print(next(iterator), iterator.stats()["elements"])
        0 1
    """

    def __init__(
        self,
        stream: Stream,
        statistics: Statistics | None = None,
        begin: Callable[[], IteratorState] | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        self._stream = stream
        self._begin = begin
        self._statistics = Statistics() if statistics is None else statistics
        self._measurements = measurements or Measurements(Meters())
        self._reads = self._measurements.reads
        # The method that is not measured, whether or not the stream is at the moment.
        self._read: _Read = MethodType(type(stream).next_chunk, stream)
        self._follows_ready = stream.ready is not None
        self._ready: abc.Iterator[T_co] = iter(()) if stream.ready is None else stream.ready
        self._elements = 0  # counts the elements in `_ready` too
        self._due = 0
        """`_elements` before the next measured read, if each read until then yields an element."""
        self._errors = 0
        # Also runs at interpreter exit, while threads can still be joined.
        self._finalizer = weakref.finalize(self, stream.close)
        self._measurements.begin(self._received)
        _open_iterators.add(self)

    def __iter__(self) -> "Iterator[T_co]":
        return self

    def __next__(self) -> T_co:
        for element in self._ready:  # a third of what calling the stream takes
            return element
        read = self._read if self._elements < self._due else self._read_measured
        try:
            chunk: list[T_co] = read(READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True)
        except Exception as error:
            if self._finalizer.alive:  # what a closed iterator says is no position's error
                self._errors += 1
            forget_locals(error)
            hide_own_frames(error)
            del self, read  # the traceback refers to this frame
            raise
        except BaseException:
            self._interrupt()
            raise
        try:
            [element] = chunk  # half of what asking for its length takes
        except ValueError:
            return self._take_first(chunk)
        self._elements += 1
        if self._follows_ready:
            self._follow_ready()
        return element

    def _read_measured(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        reads, read = self._reads, self._read
        reads.begin()
        try:
            return self._stream.next_chunk(max_elements, max_bytes, lazy)
        finally:
            distance = reads.end()
            if self._read is read:  # otherwise the iterator was closed meanwhile
                self._due = self._elements + 1 + distance

    def _take_first(self, chunk: list[Any]) -> T_co:
        if not chunk:
            self._shut(_end)
            raise StopIteration
        self._elements += len(chunk)
        self._due += len(chunk) - 1
        self._ready = iter(chunk)
        return next(self._ready)

    def _follow_ready(self) -> None:
        ready = self._stream.ready
        if ready is not None and ready is not self._ready:
            self._ready = ready
            count = length_hint(ready)
            self._elements += count
            self._due += count

    def _received(self) -> int:
        return self._elements - length_hint(self._ready)

    def _interrupt(self) -> None:
        """End the epoch, because an interrupt may leave any stream in an inconsistent state.

        Continuing could lose elements or pair the wrong ones. Over a service, which has no state to
        resume from, the epoch continues.
        """
        if self._begin is not None:
            with suppress(UnimplementedError):
                self._begin()
                self._shut(_interrupted)

    def close(self) -> None:
        """Release threads, connections and buffers; idempotent. Reading afterwards raises."""
        if self._read is not _end:
            self._shut(_closed)

    def _shut(self, then: _Read) -> None:
        if self._read is not _inherited:
            self._leave(then)
            self._finalizer()
        _open_iterators.discard(self)

    def _leave(self, then: _Read) -> None:
        """Drop the elements that were not yielded; later reads call `then`."""
        self._elements, self._ready = self._received(), iter(())
        self._read, self._due = then, sys.maxsize  # no read is measured any more
        self._measurements.end(self._elements)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this epoch as a dict of a few numbers that JSON can represent.

        `Dataset.iterator` with ``state=`` continues after the last element (or error) that this
        iterator yielded; elements computed ahead are computed again. May be called at any time.

        Raises:
            UnimplementedError: if the dataset reads from a service, unless in
                "deterministic_epoch".

        Example:
            >>> from stoker import Dataset
            >>> dataset = Dataset.range(1_000_000).map(lambda x: x * x)
            >>> iterator = iter(dataset)
            >>> next(iterator), next(iterator)
            (0, 1)
            >>> state = iterator.state_dict()
            >>> state["position"], next(dataset.iterator(state=state))
            (2, 4)
        """
        if self._begin is None:
            raise UnimplementedError("this iterator was not created by a Dataset and has no state")
        begin = self._begin()
        return begin.as_dict(begin.position + self.position())

    def position(self) -> int:
        """Return the number of elements and errors that were read."""
        return self._received() + self._errors

    def stats(self) -> dict[str, Any]:
        """Return counters of this epoch: ``elements`` yielded and ``errors`` raised.

        With a service also ``tasks_lost`` and ``splits_lost``: the tasks of lost workers and the
        splits that these tasks had begun, whose elements are lost unless already received;
        ``elements_lost``, the elements that lost clients of the job held, and ``losses_final``:
        True from the end on, unless clients still held elements of the epoch then, which are lost
        with these clients (`stoker status` counts such losses); ``epochs_shared``, the epochs that
        several clients opened; and ``shared_memory_bytes``, the memory of workers that this epoch
        has views of. With a cross-trainer cache also ``cache_hits``, ``cache_misses`` and
        ``elements_skipped``: the elements that came from the cache, the elements computed for this
        trainer, and the elements that left the cache while this iterator read their task. With
        `ignore_errors` also ``errors_ignored`` after the first error, workers' errors included.

        Also what is slow: ``seconds`` from the first to the last read and the seconds that were
        ``waited`` for elements; ``bottleneck``, the kind of what limits the rate: "trainer",
        "worker", "source", "network", "splits", "straggler", "machine", "pipeline" or
        "unknown"; a ``sentence`` with the evidence; and ``stages``, a list of dicts
        with the fields of `StageReport` for the stages in this process. With a service also
        ``tasks``, a list of dicts with the amounts and waits of each task (docs/observing.md).
        """
        own: dict[str, Any] = {"elements": self._received(), "errors": self._errors}
        own |= self._statistics.snapshot()
        if "losses_open" in own:
            own["losses_final"] = not own.pop("losses_open")
        return Stats(own | self._measurements.snapshot())

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Iterator cannot be pickled; pickle the Dataset and call iter() where it is read"
        )


def _end(*_: int) -> list[Any]:
    return []


def _closed(*_: int) -> NoReturn:
    raise FailedPreconditionError("this iterator is closed; make a new one with iter(dataset)")


def _interrupted(*_: int) -> NoReturn:
    raise FailedPreconditionError(
        "this iterator was interrupted (Ctrl-C or an exit in a function); what it had in hand is "
        "gone: go on with dataset.iterator(state=iterator.state_dict()), which loses nothing"
    )


def _inherited(*_: int) -> NoReturn:
    raise FailedPreconditionError(
        "this iterator was inherited through fork; its threads and connections belong to the "
        "parent process; make a new one here with iter(dataset)"
    )


_open_iterators: "weakref.WeakSet[Iterator]" = weakref.WeakSet()


def _poison_inherited() -> None:
    for iterator in list(_open_iterators):
        iterator._leave(_inherited)
        # Closing here would wait for threads that only the parent has.
        iterator._finalizer.detach()
    _open_iterators.clear()


os.register_at_fork(after_in_child=_poison_inherited)
