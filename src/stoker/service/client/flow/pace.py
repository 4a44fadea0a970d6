"""The number of elements that should be in flight, from the consumer's speed."""

import math

# Figures below are simulated with the classes of tests/simulation/test_credit.py.

HORIZON = 0.1
"""Seconds of the consumer's work in flight, which other clients do not get.

With 0.3 a paused consumer of 10,000 elements/s kept 3,000 of them, with 0.1 1,000. With 0.03 a
consumer of 20,000/s over a round trip of 50 ms waited 12 % of the time, with 0.1 not.
"""

LONGEST_HORIZON = 1.0
"""Seconds in flight while the consumer waits.

With 0.3 a consumer of 2,500 elements/s over a round trip of 300 ms waited 72 % of the time, with
1.0 2 %. With 3.0 a consumer on a link of a fifth of its speed ended 2.3 s after the other, with 1.0
0.7 s.
"""

STALLED = 0.02
"""Fraction of the time that the consumer may wait; beyond it the horizon doubles.

With 0.05 the consumer over 300 ms waited 4.5 % of the time; 0.005 did not differ from 0.02.
"""

LOOK_BACK_SECONDS = 0.5
"""Period over which waiting is measured. 0.2 and 1.0 differed by 1 % of the time, and both waited
longer over 300 ms."""

FIRST = 4
"""Elements in flight at first, when nothing is known of the consumer.

With 64 a consumer of one a second kept 64 elements from the others. One of 20,000/s waited 0.16 s
until its window was full, with 4 0.27.
"""

FEWEST = 2
"""Elements in flight to a slow consumer: one that it works on and the next."""

GROWTH = 4
"""Each consumed element lets this many more be in flight, so the window doubles every quarter
window.

Without this limit a consumer of a batch of 64 each second had 2,004 elements in flight after the
second batch, with it 148. With 1 a consumer of 20,000/s waited 0.41 s until its
window was full, with 4 0.27.
"""

GRADUAL_FIRST, GRADUAL_GROWTH = 1, 0.5
"""`FIRST` and `GROWTH` of a gradual start: about as little is in flight at first as in tf.data
service, so that elements that a program has not asked for are not lost with a worker."""

MEMORY_SECONDS = 0.5
"""Time constant of the measured speed; a longer pause, such as a checkpoint, counts as this.

With 1.0 the window was half of what it should be 1 s after the consumer became 10,000 times as
fast; 0.1 would forget the speed within one batch of 0.2 s.
"""


# The window follows the user's own speed: a fixed window is 13 s of work for a slow trainer and too
# small for a fast trainer. (docs/decisions/020)
class Pace:
    """Measures the consumer's speed: elements per second of work.

    Waiting does not count as work, because the rate at which elements arrive does not depend on
    what the consumer wants. A consumer that waits gets a longer horizon, but at most what it really
    consumes in `LONGEST_HORIZON`, as more than that would only queue on a slow link.

    Args:
        gradual: nothing is in flight before `begin`, and then as `GRADUAL_GROWTH` says.

    Attributes:
        window: elements that should be sent and not yet consumed, over all workers.
    """

    def __init__(self, *, gradual: bool = False) -> None:
        self._first = GRADUAL_FIRST if gradual else FIRST
        self._growth = GRADUAL_GROWTH if gradual else GROWTH
        self.window = 0 if gradual else FIRST
        self._horizon = HORIZON
        self._consumed = self._period_elements = 0
        self._elements = self._seconds = self._rate = 0.0
        self._waited = self._period_began = 0.0

    def begin(self) -> None:
        """Record that the consumer reads."""
        self.window = max(self.window, self._first)

    def consumed(self, elements: int, seconds: float, now: float) -> None:
        """Record that the consumer worked `seconds` on elements."""
        seconds = min(seconds, MEMORY_SECONDS)
        kept = math.exp(-seconds / MEMORY_SECONDS)
        self._elements = self._elements * kept + elements
        self._seconds = self._seconds * kept + seconds
        self._consumed += elements
        self._period_elements += elements
        speed = self._elements / max(self._seconds, 1e-9)
        longer = min(self._horizon * speed, LONGEST_HORIZON * self._rate)
        wanted = max(HORIZON * speed, longer)
        limit = self._first + self._growth * self._consumed
        self.window = max(FEWEST, math.ceil(min(limit, wanted)))
        if limit < wanted:  # the window still grows, so waiting is expected and short
            self._waited = 0.0
        if now - self._period_began >= LOOK_BACK_SECONDS:
            self._look_back(now)

    def waited(self, seconds: float) -> None:
        """Record that the consumer waited for an element."""
        self._waited += seconds

    def _look_back(self, now: float) -> None:
        """Adapt the horizon to the waiting of the past period."""
        seconds = now - self._period_began
        factor = 2 if self._waited > STALLED * seconds else 0.9
        self._horizon = min(max(self._horizon * factor, HORIZON), LONGEST_HORIZON)
        self._rate = max(0.9 * self._rate, self._period_elements / seconds)
        self._period_began, self._period_elements, self._waited = now, 0, 0.0
