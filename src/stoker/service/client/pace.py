"""How many elements should be under way to a user, by the speed at which the user takes them."""

import math

HORIZON = 0.1
"""Seconds of the user's own work that should be under way: what is held here, nobody else gets."""

FARTHEST = 1.0
"""Seconds of it where that is not enough: a long way, or a user who takes much at once."""

LOOK_BACK_SECONDS = 0.5
"""How far it is enough is judged over so long: with work and wait of users who take in bursts."""

STALLED = 0.05
STEADY = 0.01
"""Part of the time that the user waits because the window is too small: too much; little."""

FIRST = 4
"""Elements under way at first, when nothing is known of the user."""

FEWEST = 2
"""One in the user's hands and one to follow it."""

GROWTH = 4
"""For each element taken so many more may be under way: the window doubles in a quarter of it."""

MEMORY_WINDOWS = 16
MEMORY_SECONDS = 1.0
"""What is older than so many windows, or than so much of the user's work, has little weight."""

PAUSE_SECONDS = 1.0
"""A longer time between two takes counts as this: a checkpoint, a compilation, an evaluation."""


class Pace:
    """Measures the user, who takes elements and works on them in between.

    Only the work counts, never the wait for elements: a user who waits takes what comes, and how
    fast elements come says nothing of how many are wanted.

    Attributes:
        window: elements that should be sent and not yet taken, over all workers.
    """

    def __init__(self) -> None:
        self.window = FIRST
        self._taken = 0
        self._elements = 0.0
        self._seconds = 0.0
        self._horizon = HORIZON
        self._stalled = 0.0
        self._since = 0.0
        self._left = 0

    def took(self, elements: int, seconds: float, now: float) -> None:
        """The user took so many elements and worked so long on them."""
        seconds = min(seconds, PAUSE_SECONDS)
        age = elements / (MEMORY_WINDOWS * self.window) + seconds / MEMORY_SECONDS
        kept = math.exp(-age)
        self._elements = self._elements * kept + elements
        self._seconds = self._seconds * kept + seconds
        self._taken += elements
        at_most = FIRST + GROWTH * self._taken
        by_speed = self._horizon * self._elements / max(self._seconds, 1e-9)
        self.window = max(FEWEST, math.ceil(min(at_most, by_speed)))
        if at_most < by_speed:  # of course the user waits, and not for long
            self._stalled = 0.0
        self._left -= elements
        if self._left <= 0 and now - self._since >= LOOK_BACK_SECONDS:
            self._look_back(now)

    def stalled(self, seconds: float) -> None:
        """The user waited so long because workers might send no more."""
        self._stalled += seconds

    def _look_back(self, now: float) -> None:
        """After a window and a while: had it to be larger, or may it be smaller again?"""
        part = self._stalled / (now - self._since)
        if part > STALLED:
            self._horizon = min(2 * self._horizon, FARTHEST)
        elif part < STEADY:
            self._horizon = max(0.9 * self._horizon, HORIZON)
        self._since, self._stalled, self._left = now, 0.0, self.window
