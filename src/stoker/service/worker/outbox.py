"""The actions of the worker's logic."""

from stoker.errors import StokerError, to_record
from stoker.service import messages as m
from stoker.service.worker import actions as a
from stoker.wire import frames as f


class Outbox:
    """Collects the actions of one call of the logic, in order.

    Attributes:
        in_session: the dispatcher has welcomed the worker on the present session.
    """

    def __init__(self) -> None:
        self.in_session = False
        self._actions: list[a.Action] = []

    def do(self, action: a.Action) -> None:
        """Add an action."""
        self._actions.append(action)

    def send_to_dispatcher(self, message: m.FromWorker | None) -> None:
        """Send a message, if there is one, unless the session is broken."""
        # State is compared on the next session, so that a message in between may be lost.
        if message is not None and self.in_session:
            self.do(a.SendToDispatcher(message))

    def close_connection(self, connection: int, error: StokerError | None) -> None:
        """Say `Bye` to a client and close its connection."""
        self.do(a.SendToClient(connection, f.Bye(None if error is None else to_record(error))))
        self.do(a.CloseConnection(connection))

    def take(self) -> list[a.Action]:
        """Remove and return the actions."""
        actions, self._actions = self._actions, []
        return actions
