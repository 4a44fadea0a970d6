"""The values of the splits of a listed source, such as millions of file names."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_decode = msgspec.msgpack.Decoder(list[Any]).decode

MAX_LISTED_BATCH = 1024
MAX_LISTED_BYTES = 1 << 20
"""Most listed splits, and bytes of their values, assigned in a message (or a single split)."""

DECODED_PAGES = 2
"""Pages kept decoded: splits are assigned in order, except for returned splits."""


class _Pages:
    pages: list[bytes]
    _starts: list[int]
    _count: int
    _decoded: dict[int, list[Any]]


class ListedValues(msgspec.Struct, _Pages, array_like=True, dict=True, eq=False):
    """The values of all splits of a source, in the encoded pages that a worker has sent.

    A page is an object for the allocator and none for the garbage collector, and takes half the
    memory of its file names.

    Attributes:
        digests: the `page_digest` and the number of values of each page.
        pages: the encoded pages; not stored.

    Example:
        >>> values = ListedValues()
        >>> for page in (["a", "b"], ["c"]):
        ...     encoded = msgspec.msgpack.encode(page)
        ...     values.add(len(page), encoded, page_digest(encoded))
        >>> len(values), list(values)
        (3, ['a', 'b', 'c'])
    """

    digests: list[tuple[bytes, int]] = []

    def __post_init__(self) -> None:
        self.pages, self._starts, self._count, self._decoded = [], [], 0, {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, split: int) -> Any:
        if not 0 <= split < self._count:
            raise IndexError(f"split {split} of {self._count}")
        # Pages are cut by bytes, so they differ in their number of values.
        number = bisect_right(self._starts, split) - 1
        return self._page(number)[split - self._starts[number]]

    def __iter__(self) -> Iterator[Any]:
        return (value for page in self.pages for value in decode_page(page))

    def add(self, count: int, page: bytes, digest: bytes) -> None:
        """Append a page of `count` values, at least 1."""
        self.digests.append((digest, count))
        self._append(count, page)

    def restore(self, pages: Mapping[bytes, bytes]) -> None:
        """Restore `pages`, after a snapshot was loaded, from a page of each digest."""
        for digest, count in self.digests:
            self._append(count, pages[digest])

    def _append(self, count: int, page: bytes) -> None:
        self._starts.append(self._count)
        self.pages.append(page)
        self._count += count

    def _page(self, number: int) -> list[Any]:
        page = self._decoded.get(number)
        if page is None:
            page = self._decoded[number] = decode_page(self.pages[number])
            if len(self._decoded) > DECODED_PAGES:
                del self._decoded[next(iter(self._decoded))]
        return page


def page_digest(page: bytes | msgspec.Raw) -> bytes:
    """Return the digest by which a page is stored."""
    return hashlib.blake2b(page, digest_size=16).digest()


def decode_page(page: bytes | msgspec.Raw) -> list[Any]:
    """Return the values of a page.

    Raises:
        msgspec.MsgspecError: if the page is not a list.
    """
    return _decode(page)
