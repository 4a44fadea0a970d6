"""Body of a frame: buffers one after the other, each starting at a multiple of 64 bytes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec.dtypes import Dtype
from stoker.errors import WireError

# Size of a cache line; vector instructions are fastest at this alignment.
ALIGNMENT = 64

Buffer: TypeAlias = bytes | bytearray | memoryview

Body: TypeAlias = Buffer | Sequence[Buffer]
"""A whole body, or the parts of a body that is not contiguous, in order.

No buffer of a column crosses the end of a part; a part starts with a buffer, or with the padding
before a buffer.
"""

_PADDING = bytes(ALIGNMENT)
_INT64 = np.dtype("<i8")
_BYTE = np.dtype(np.uint8)


def empty_body(size: int) -> memoryview:
    """Return new aligned memory for a body, not zeroed.

    Raises:
        WireError: if there is not enough memory.
    """
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise WireError(f"a body of {size} bytes does not fit in memory here") from error
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].data


def body_size(body: Body) -> int:
    """Return the size of `body` in bytes."""
    return sum(memoryview(part).nbytes for part in parts_of(body))


def parts_of(body: Body) -> Sequence[Buffer]:
    """Return the parts of `body`; a contiguous body is its only part."""
    return [body] if isinstance(body, bytes | bytearray | memoryview) else body


class BodyWriter:
    """Collector of the buffers of a body, with the padding between buffers."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.size = 0

    def align(self) -> None:
        """Pad to the start of the next buffer."""
        gap = -self.size % ALIGNMENT
        if gap:
            self.buffers.append(_PADDING[:gap])
            self.size += gap

    def write(self, buffer: Buffer, size: int) -> None:
        """Append an aligned buffer of `size` bytes, which is not copied."""
        self.align()
        if size:
            self.buffers.append(buffer)
            self.size += size

    def write_joined(self, pieces: Sequence[bytes], sizes: Sequence[int], large: int) -> None:
        """Append `pieces` as one buffer; not copied if a piece has `large` bytes."""
        self.align()
        # Joining copies the bytes, but the sender then passes one buffer to the system, not many.
        if len(pieces) > 1 and max(sizes) < large:
            pieces = [b"".join(pieces)]
        self.buffers.extend(piece for piece in pieces if piece)
        self.size += sum(sizes)

    def write_array(self, array: npt.NDArray[Any]) -> None:
        """Append a C-contiguous array, which is not copied."""
        size = array.nbytes
        if size:
            self.write(array.reshape(-1).view(_BYTE).data, size)
        else:
            self.align()

    def write_int64(self, values: Any) -> None:
        """Append numbers as int64; OverflowError if a number does not fit."""
        self.write_array(np.array(values, dtype=_INT64))

    def filler(self, count: int) -> None:
        """Append one byte for each of `count` values without data."""
        self.write(bytes(count), count)


class BodyReader:
    """Reads the buffers of a body in the order they were written, never beyond its end.

    Attributes:
        view: the part that has the buffer taken last.
        position: end of the buffer taken last, in the whole body.
        size: bytes of the whole body.
    """

    def __init__(self, body: Body) -> None:
        parts = [_writable(part) for part in parts_of(body)] or [empty_body(0)]
        self.view = parts[0]
        self._later = parts[:0:-1]
        self._begin, self._end = 0, self.view.nbytes
        self.size = sum(part.nbytes for part in parts)
        self.position = 0

    def take(self, size: int) -> int:
        """Return the offset in `view` of the next buffer, of `size` bytes.

        Raises:
            WireError: if the buffer extends beyond the body, or from one part into another.
        """
        start = self.position + -self.position % ALIGNMENT
        if size < 0 or start + size > self._end:
            self._enter_part(start, size)
        self.position = start + size
        return start - self._begin

    def _enter_part(self, start: int, size: int) -> None:
        """Move on to the part that has the buffer at `start`."""
        while self._later and size >= 0 and start >= self._end:
            self.view = self._later.pop()
            self._begin, self._end = self._end, self._end + self.view.nbytes
        if size < 0 or start + size > self._end:
            crosses = ", across its parts" if 0 <= size <= self.size - start else ""
            raise WireError(
                f"the header describes a buffer of {size} bytes at {start} of a body of "
                f"{self.size}{crosses}"
            )

    def array(self, dtype: Dtype, count: int) -> npt.NDArray[Any]:
        """Return the next buffer as a view of `count` items."""
        start = self.take(count * dtype.itemsize)
        return np.ndarray((count,), dtype, self.view, start)

    def sizes(self, count: int) -> list[int]:
        """Return the next buffer as sizes; WireError if one is negative."""
        sizes: list[int] = self.array(_INT64, count).tolist()
        if count and min(sizes) < 0:
            raise WireError(f"a size of {min(sizes)}")
        return sizes

    def filler(self, count: int) -> None:
        """Skip the bytes of `BodyWriter.filler`."""
        self.take(count)

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            WireError: if the body is longer than the header describes.
        """
        if self.position != self.size:
            raise WireError(
                f"a body of {self.size} bytes, of which the header describes {self.position}"
            )


def _writable(part: Buffer) -> memoryview:
    view = memoryview(part).cast("B")
    if not view.readonly:
        return view
    # Decoded arrays must be writable.
    copy = empty_body(view.nbytes)
    copy[:] = view
    return copy
