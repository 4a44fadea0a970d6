"""A SplitReader for tests: what each pass of each source shall read."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any


class ScriptedSplits:
    """Hands out ``passes[source][n]`` on the n-th opening of the source, nothing afterwards."""

    draining = False

    def __init__(self, passes: dict[int, list[list[Any]]]) -> None:
        self._passes = passes
        self.opened: dict[int, int] = defaultdict(int)

    def open(self, source: int) -> Iterator[Any]:
        n = self.opened[source]
        self.opened[source] += 1
        passes = self._passes[source]
        return iter(passes[n] if n < len(passes) else [])
