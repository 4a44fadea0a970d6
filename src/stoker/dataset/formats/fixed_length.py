"""Files of records of one length, between a header and a footer."""

import msgspec
import numpy as np

from stoker.dataset.formats.opening import Window
from stoker.dataset.formats.reader import Reader
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import DataLossError, InvalidArgumentError

# What one read returns at most, well under a millisecond's work.
_MOST_RECORDS = 4096


class FixedLength(msgspec.Struct, frozen=True, tag="fixed_length"):
    """Records of `record_bytes`, behind a header and before a footer that are not read."""

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0

    def element_spec(self) -> Spec:
        """Of a record."""
        return TensorSpec((), np.dtype(object))

    def open(self, window: Window) -> Reader:
        """Reads the file behind the window."""
        return FixedLengthReader(window, self)


class FixedLengthReader(Reader):
    """Reads records of one length.

    Where the file's size is known, one that holds no whole number of records is refused, and
    records are passed by arithmetic.
    """

    def __init__(self, window: Window, layout: FixedLength) -> None:
        super().__init__(window)
        self._layout = layout
        self._length = layout.record_bytes
        self._footer = layout.footer_bytes
        self._at = layout.header_bytes
        self._begun = False

    def _parse(self) -> list[bytes]:
        count = self._at_hand()
        block, start = self._window.block, self._at
        self._at = start + count * self._length
        self._number += count
        return [block[at : at + self._length] for at in range(start, self._at, self._length)]

    def _pass(self, n: int) -> int:
        if self._window.size is None:
            count = min(n, self._at_hand())
        else:
            self._begin(self._window.size)
            behind = self._window.size - self._footer
            count = min(n, (behind - self._window.offset - self._at) // self._length)
        self._at += count * self._length
        return count

    def _at_hand(self) -> int:
        """How many records the block holds; moves the window if none, and is 0 at the end."""
        if self._window.size is not None:
            self._begin(self._window.size)
        held = len(self._window.block) - self._at - self._footer
        if held < self._length:
            block = self._window.move(self._at, self._length + self._footer)
            self._at = 0
            held = len(block) - self._footer
            if held < self._length:
                self._check_end(held)
                return 0
        return min(held // self._length, _MOST_RECORDS)

    def _begin(self, size: int) -> None:
        if self._begun:
            return
        self._begun = True
        body = size - self._layout.header_bytes - self._footer
        if body < 0 or body % self._length:
            raise InvalidArgumentError(
                f"{self._window.path} has {size} bytes: without its header "
                f"({self._layout.header_bytes}) and footer ({self._footer}) these are {body}, no "
                f"multiple of `record_bytes` ({self._length})"
            )

    def _check_end(self, held: int) -> None:
        """That the file ends behind a record and a footer."""
        if self._window.offset < self._layout.header_bytes:
            raise DataLossError(
                f"{self._window.path} is truncated: it ends after {self._window.offset} bytes, in "
                f"its header of {self._layout.header_bytes}"
            )
        if held:
            raise DataLossError(
                f"{self._where(0)} is truncated: it has {self._length} bytes and is followed by a "
                f"footer of {self._footer}, and the file ends after {held + self._footer}"
            )
