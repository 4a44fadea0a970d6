"""Tables of the functions that handle the records of an entity, by type of record."""

from collections.abc import Callable
from typing import Any, TypeVar

from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.state import State

_F = TypeVar("_F", bound=Callable[..., Any])


class Handlers:
    """The functions of one file; each is registered for the type of its last argument.

    Attributes:
        adds: put an entity of a snapshot or of a record in its tables, and set its references.
        checks: return whether a record fits the state. All ids in the record are known.
        applies: change the state; they do not raise for a record that was checked.
        logs_before: add lines about an entity that a record removes.
        logs_after: add lines about an entity that a record has added or changed.
    """

    def __init__(self) -> None:
        self.adds: dict[type, Callable[[State, Any], None]] = {}
        self.checks: dict[type, Callable[[State, Any], bool]] = {}
        self.applies: dict[type, Callable[[State, Any], None]] = {}
        self.logs_before: dict[type, Callable[[State, EventLog, Any], None]] = {}
        self.logs_after: dict[type, Callable[[State, EventLog, Any], None]] = {}

    def add(self, function: _F) -> _F:
        """Register a function of `adds`."""
        return _register(self.adds, function)

    def check(self, function: _F) -> _F:
        """Register a function of `checks`."""
        return _register(self.checks, function)

    def apply(self, function: _F) -> _F:
        """Register a function of `applies`."""
        return _register(self.applies, function)

    def log_before(self, function: _F) -> _F:
        """Register a function of `logs_before`."""
        return _register(self.logs_before, function)

    def log_after(self, function: _F) -> _F:
        """Register a function of `logs_after`."""
        return _register(self.logs_after, function)

    def update(self, other: "Handlers") -> None:
        """Add the functions of another file."""
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.update(theirs)


def _register(table: dict[type, Any], function: _F) -> _F:
    *_, kind = (kind for name, kind in function.__annotations__.items() if name != "return")
    table[kind] = function
    return function
