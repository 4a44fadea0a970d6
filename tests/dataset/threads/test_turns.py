"""Streams that are read in turn, and closed meanwhile."""

from typing import Any

from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.turns import TurnsStream


class Endless(Stream):
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return [0]


class ClosedMeanwhile:
    """Two streams; taking what is ready closes their reader, as another thread may."""

    def __init__(self) -> None:
        self.reader = TurnsStream(self, cycle_length=2, block_length=1)
        self._streams = [Endless(), Endless()]

    def next(self) -> Stream | None:
        return self._streams.pop() if self._streams else None

    def ready(self, stream: Stream, max_elements: int, max_bytes: int) -> list[Any]:
        self.reader.close()
        return [1]

    def close(self) -> None:
        pass


def test_a_reader_that_is_closed_while_it_reads_ends_its_chunk() -> None:
    reader = ClosedMeanwhile().reader
    assert reader.next_chunk(1, 1) == [0]
    assert reader.next_chunk(1, 1) == [0]
    assert reader.next_chunk(100, 1 << 20) == [0, 1]
    assert reader.next_chunk(100, 1 << 20) == []
