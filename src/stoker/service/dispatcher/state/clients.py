"""Clients: opened and closed."""

from stoker.service.dispatcher.entities.entities import ClientEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.modes.state import AnyPosition
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State


def add_client(state: State, client: ClientEntry) -> None:
    """Add a client to the tables of the state and to its iteration."""
    client.iteration = state.iterations[client.iteration_id]
    client.iteration.clients[client.client_id] = client
    state.clients[client.client_id] = state.clients_by_key[client.key] = client


class ClientAdded(Record, frozen=True):
    """A client reads an iteration; it resumes its session with `key`.

    `code` is the `jobs.fingerprint` of its dataset.
    """

    adds = "client_id"

    client_id: int
    iteration_id: int
    process: str
    code: str = ""
    key: bytes = b""
    consumer_index: int | None = None

    def fits(self, state: State) -> bool:
        """Return whether the iteration can be read."""
        return state.iterations[self.iteration_id].error is None

    def apply(self, state: State) -> None:
        """Add the client."""
        client = ClientEntry(
            client_id=self.client_id,
            iteration_id=self.iteration_id,
            process=self.process,
            key=self.key,
            consumer_index=self.consumer_index,
        )
        add_client(state, client)
        client.iteration.job.add_code(self.code)
        client.iteration.clients_opened += 1
        mode_of(client.iteration.parameters).sharing.client_added(client)

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the client."""
        iteration = state.iterations[self.iteration_id]
        log.add_of(iteration, "a client joined", client=self.client_id)


class ClientRemoved(Record, frozen=True):
    """A client was released; `consumed` and `position` as in `ClientClose`."""

    client_id: int
    consumed: dict[int, tuple[int, int]] = {}
    position: AnyPosition | None = None

    def apply(self, state: State) -> None:
        """Remove the client from its tasks."""
        client = state.clients.pop(self.client_id)
        # Clients without a key share one entry.
        state.clients_by_key.pop(client.key, None)
        iteration = client.iteration
        del iteration.clients[self.client_id]
        mode_of(iteration.parameters).sharing.client_removed(client, self.position)
        # By number: a state that was loaded from a snapshot has the tasks of a client in another
        # order.
        for task in sorted(client.tasks.values(), key=lambda x: x.task_id):
            iteration.remove_reader(task, client, self.consumed.get(task.task_id))

    def log_before(self, state: State, log: EventLog) -> None:
        """Log the end of the client."""
        iteration = state.clients[self.client_id].iteration
        log.add_of(iteration, "a client left", client=self.client_id)
