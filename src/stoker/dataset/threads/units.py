"""What is delivered as a whole: one element, or the elements of one batch."""

from typing import Any, Protocol


class Sink(Protocol):
    """Where the results of one unit go; `put` is called from many threads, once per slot."""

    def put(self, slot: int, value: Any) -> None: ...

    def result(self, count: int) -> Any:
        """What is delivered once all `count` slots are filled; runs on the consumer's thread."""
        ...


class Single:
    """The sink of a unit of one element."""

    __slots__ = ("_value",)

    def __init__(self, number: int) -> None:
        self._value: Any = None

    def put(self, slot: int, value: Any) -> None:
        self._value = value

    def result(self, count: int) -> Any:
        return self._value


class Unit:
    """The elements delivered together, while they are computed; its owner's lock guards it.

    Attributes:
        sink: takes the results.
        count: elements it has so far; the last unit of a stream may get fewer than its size.
        missing: elements it still waits for, computed or even to be read.
        done: elements computed, or failed.
        bytes: what the results take.
        dropped: nobody waits for it any more.
        error: what the first of its elements that failed raised.
        error_slot: which element that was.
    """

    __slots__ = ("bytes", "count", "done", "dropped", "error", "error_slot", "missing", "sink")

    def __init__(self, sink: Sink, size: int) -> None:
        self.sink = sink
        self.count = 0
        self.done = 0
        self.bytes = 0
        self.missing = size
        self.dropped = False
        self.error: BaseException | None = None
        self.error_slot = size

    def fail(self, slot: int, error: BaseException) -> None:
        """Keep the error of the lowest slot, whichever comes first: as computing in order would."""
        if slot < self.error_slot:
            self.error, self.error_slot = error, slot

    def deliver(self) -> Any:
        """The unit's value.

        Raises:
            BaseException: what its first failed element raised.
        """
        if self.error is not None:
            raise self.error
        return self.sink.result(self.count)
