"""Delays between the death of a worker process and the start of the next."""

import dataclasses
from collections.abc import Sequence

from stoker.dataset.streams.calls.call_ranges import CallRange, common

_DEATHS_OF_ONE_CALL = 3
"""Deaths by which the dispatcher finds an element that ends its process."""


@dataclasses.dataclass
class Backoff:
    """Delay before a restart, in seconds; doubles with each crash and is reset by a long run.

    It does not double while the dispatcher searches for an element: if the deaths have calls of
    user functions in common, and for the first death after them.

    Example:
        >>> backoff = Backoff()
        >>> [backoff.after(lived=1.0) for _ in range(6)]
        [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
        >>> backoff.after(lived=60.0)
        0.5
        >>> backoff = Backoff()
        >>> call, other = CallRange(1, 7, 8), CallRange(1, 9, 10)
        >>> [backoff.after(1.0, [each]) for each in (call, call, call, other, other, other)]
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
        >>> [backoff.after(1.0, [other]) for _ in range(3)]
        [1.0, 2.0, 4.0]
    """

    first: float = 0.5
    longest: float = 10.0
    good_run: float = 30.0
    _next: float = 0.0
    _calls: list[CallRange] = dataclasses.field(default_factory=list)
    """Calls that the last `_deaths` deaths have in common."""
    _deaths: int = 0

    def after(self, lived: float, calls: Sequence[CallRange] = ()) -> float:
        """Return the delay after a process that ran for `lived` seconds.

        Args:
            lived: the seconds.
            calls: those that may have ended it.
        """
        if self._is_search(calls) or lived >= self.good_run or not self._next:
            delay = self.first
        else:
            delay = self._next
        self._next = min(self.longest, delay * 2)
        return delay

    def _is_search(self, calls: Sequence[CallRange]) -> bool:
        """Return whether this death, or those before, may show the dispatcher an element."""
        in_common = common(self._calls, calls)
        before, self._deaths = self._deaths, self._deaths + 1 if in_common else int(bool(calls))
        self._calls = in_common or list(calls)
        # The dispatcher accuses an element after its third death: until then a delay of 10 s would
        # only delay the search. (docs/decisions/073)
        if in_common:
            return self._deaths <= _DEATHS_OF_ONE_CALL
        return bool(calls) and before > 1
