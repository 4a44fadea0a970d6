"""The body of a frame: buffers one after the other, each starting at a multiple of 64 bytes."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.dataset.codec.dtypes import Dtype
from stoker.errors import WireError

ALIGNMENT = 64
"""A cache line, and what vector instructions like best."""

Buffer: TypeAlias = bytes | bytearray | memoryview

_PADDING = bytes(ALIGNMENT)
_INT64 = np.dtype("<i8")
_BYTE = np.dtype(np.uint8)


def empty_body(size: int) -> memoryview:
    """Fresh aligned memory for a body, not zeroed: it is about to be written.

    Raises:
        WireError: there is not so much memory.
    """
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise WireError(f"a body of {size} bytes does not fit in memory here") from error
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].data


class BodyWriter:
    """Collects the buffers of a body, with the padding between them."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.size = 0

    def align(self) -> None:
        """Move to where the next buffer starts."""
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

    def write_joined(self, pieces: Iterable[bytes], sizes: Iterable[int], large: int) -> None:
        """Append `pieces` as one buffer; not copied if one of them has `large` bytes."""
        self.align()
        pieces, sizes = list(pieces), list(sizes)
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
        """Append numbers as int64; OverflowError if one does not fit."""
        self.write_array(np.array(values, dtype=_INT64))

    def filler(self, count: int) -> None:
        """A byte for each of `count` values that have none of their own."""
        self.write(bytes(count), count)


class BodyReader:
    """Takes the buffers of a body back in the order they were written, never beyond its end."""

    def __init__(self, body: Buffer) -> None:
        view = memoryview(body).cast("B")
        if view.readonly:
            # What is decoded must be writable, whatever memory it arrived in.
            copy = empty_body(view.nbytes)
            copy[:] = view
            view = copy
        self.view = view
        self.size = view.nbytes
        self.position = 0

    def take(self, size: int) -> int:
        """The offset of the next buffer, of `size` bytes.

        Raises:
            WireError: the body ends before it does.
        """
        start = self.position + -self.position % ALIGNMENT
        if size < 0 or start + size > self.size:
            raise WireError(
                f"the header describes a buffer of {size} bytes at {start} of a body of {self.size}"
            )
        self.position = start + size
        return start

    def array(self, dtype: Dtype, count: int) -> npt.NDArray[Any]:
        """The next buffer as a view of `count` items."""
        start = self.take(count * dtype.itemsize)
        return np.ndarray((count,), dtype, self.view, start)

    def int64(self, count: int) -> list[int]:
        """The next buffer as Python ints."""
        values: list[int] = self.array(_INT64, count).tolist()
        return values

    def sizes(self, count: int) -> list[int]:
        """The next buffer as sizes; WireError if one is negative."""
        sizes = self.int64(count)
        if count and min(sizes) < 0:
            raise WireError(f"a size of {min(sizes)}")
        return sizes

    def filler(self, count: int) -> None:
        """Pass what `BodyWriter.filler` wrote."""
        self.take(count)

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            WireError: the body is longer than what the header describes.
        """
        if self.position != self.size:
            raise WireError(
                f"a body of {self.size} bytes, of which the header describes {self.position}"
            )
