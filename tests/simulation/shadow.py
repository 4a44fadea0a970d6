"""A second state of the dispatcher, changed only by the encoded records that it writes."""

from stoker.service.dispatcher.state.snapshot import dump, load, replay
from stoker.service.dispatcher.state.state import State


class Shadow:
    """Replay every unit when it is written; compare the result with the live state.

    Args:
        state: where the units begin; ``None`` for a new state.

    Attributes:
        units: the number of units replayed.
    """

    def __init__(self, state: list[bytes] | None = None) -> None:
        self.units = 0
        self._state = load(state or [])

    def add(self, unit: bytes) -> None:
        """Replay a unit."""
        if unit:
            self.units += 1
            replay(self._state, unit)

    def differences(self, live: State) -> list[str]:
        """Return how the live state differs from the replayed one, and from its own snapshot."""
        expected = list(dump(live))
        found = []
        if list(dump(self._state)) != expected:
            found.append(f"replay of {self.units} units differs from the live state")
        if list(dump(load(expected))) != expected:
            found.append("a snapshot differs from what was loaded from it")
        return found
