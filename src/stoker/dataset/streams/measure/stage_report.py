"""Measurements of one stage of an open pipeline, as plain data."""

from typing import TypeVar

import msgspec

_Sums = TypeVar("_Sums", bound=msgspec.Struct)

_COUNTS = "elements", "bytes", "chunks"
_SECONDS = "seconds", "computing", "split_wait", "busy", "get_wait", "put_wait"


class StageReport(msgspec.Struct):
    """Measurements of one node of a pipeline since the epoch began; encodable by msgpack.

    Attributes:
        number: the node's number in the tree (`Context.numbers`); the nodes of a dataset that a
            user function returned have numbers from `FIRST_NESTED` on.
        kind: the kind of the node, such as "map".
        site: the user's line that built it, such as "train.py:12".
        function: the name of the user's function; "" without one.
        inputs: the numbers of the stages that it reads.
        elements: the elements that it yielded.
        bytes: approximate size of those elements.
        busy: seconds in the stage itself, without its inputs; summed over threads.
        get_wait: seconds in which its readers waited for it, summed over readers.
        put_wait: seconds in which its threads waited for room in its buffer.
        occupancy: mean fraction of its buffer that was in use; None without a buffer. A stage with
            a buffer reads its inputs on threads of its own.
        parallel: the threads that compute at the same time.
        p50: median of the seconds per element.
        p99: 99th percentile of the seconds per element.
        cpu: fraction of `busy` in which its thread had a core, without the time in which it waited
            for one; None if it was not measured. A function with a low fraction waits for files,
            the network or a lock.
        estimated: its calls are so short that only some were measured; sums are estimates.
        counted: `elements` is exact though `estimated`: it follows from the elements read.
    """

    number: int
    kind: str
    site: str = ""
    function: str = ""
    inputs: list[int] = []
    elements: int = 0
    bytes: int = 0
    busy: float = 0.0
    get_wait: float = 0.0
    put_wait: float = 0.0
    occupancy: float | None = None
    parallel: int = 1
    p50: float = 0.0
    p99: float = 0.0
    cpu: float | None = None
    estimated: bool = False
    counted: bool = False

    @property
    def label(self) -> str:
        """The method with its function and line, such as ``map(decode) at train.py:12``."""
        name = f"{self.kind}({self.function})" if self.function else self.kind
        return f"{name} at {self.site}" if self.site else name


FIRST_NESTED = 1 << 16
"""The number of the first stage inside a dataset that a user function returned."""


def combined(new: _Sums, old: _Sums, weight: float = 1.0, sign: int = 1) -> _Sums:
    """Return `new` with the counts and seconds of two measurements of one stage or task.

    Args:
        new: has the other fields of the result.
        old: is added, or subtracted if `sign` is -1.
        weight: multiplies the seconds of `new`.
        sign: 1 or -1.
    """
    weights = dict.fromkeys(_COUNTS, 1) | dict.fromkeys(_SECONDS, weight)
    # Quantiles and fractions have no sum: those of `new` count.
    sums = {
        name: weights[name] * getattr(new, name) + sign * getattr(old, name)
        for name in new.__struct_fields__
        if name in weights
    }
    return msgspec.structs.replace(new, **sums)
