"""Measure the seconds spent in blocks of code, readable while one runs."""

from collections.abc import Callable
from types import TracebackType


class Stopwatch:
    """The seconds spent inside its ``with`` blocks, on one thread at a time.

    Any thread may read it meanwhile: total and start change together.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._state: tuple[float, float | None] = 0.0, None

    def __enter__(self) -> None:
        self._state = self._state[0], self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        total, since = self._state
        assert since is not None
        self._state = total + self._clock() - since, None

    @property
    def seconds(self) -> float:
        """The total, a block that is open now included."""
        total, since = self._state
        return total if since is None else total + self._clock() - since
