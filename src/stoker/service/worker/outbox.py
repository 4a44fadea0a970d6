"""The actions of the worker's logic."""

from stoker.errors import StokerError, to_record
from stoker.service import messages as m
from stoker.service.worker.actions import Action, CloseConnection, ToClient, ToDispatcher
from stoker.wire import frames as f


class Outbox:
    """Collects the actions of one call of the logic, in order.

    Attributes:
        in_session: the dispatcher has welcomed the worker on the present session.
    """

    def __init__(self) -> None:
        self.in_session = False
        self._actions: list[Action] = []

    def do(self, action: Action) -> None:
        """Add an action."""
        self._actions.append(action)

    def send_to_dispatcher(self, message: m.FromWorker | None) -> None:
        """Send a message, if there is one, unless the session is broken."""
        if message is not None and self.in_session:
            self.do(ToDispatcher(message))

    def close_connection(self, connection: int, error: StokerError | None) -> None:
        """Say `Bye` to a client and close its connection."""
        self.do(ToClient(connection, f.Bye(None if error is None else to_record(error))))
        self.do(CloseConnection(connection))

    def take(self) -> list[Action]:
        """Remove and return the actions."""
        actions, self._actions = self._actions, []
        return actions
