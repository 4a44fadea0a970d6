"""Clients: opened and closed."""

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import ClientEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State

handlers = Handlers()


@handlers.add
def _add_client(state: State, client: ClientEntry) -> None:
    client.iteration = state.iterations[client.iteration_id]
    client.iteration.clients[client.client_id] = client
    state.clients[client.client_id] = state.clients_by_key[client.key] = client


@handlers.check
def _check_client_added(state: State, record: r.ClientAdded) -> bool:
    return state.iterations[record.iteration_id].error is None


@handlers.apply
def _apply_client_added(state: State, record: r.ClientAdded) -> None:
    iteration = state.iterations[record.iteration_id]
    client = ClientEntry(
        client_id=record.client_id,
        iteration_id=record.iteration_id,
        process=record.process,
        key=record.key,
        consumer_index=record.consumer_index,
    )
    _add_client(state, client)
    iteration.job.add_code(record.code)
    iteration.clients_opened += 1
    mode_of(iteration.parameters).sharing.client_added(client)


@handlers.log_after
def _log_client_added(state: State, log: EventLog, record: r.ClientAdded) -> None:
    client = state.clients[record.client_id]
    log.add_of(client.iteration, "a client joined", client=record.client_id)


@handlers.apply
def _apply_client_removed(state: State, record: r.ClientRemoved) -> None:
    client = state.clients.pop(record.client_id)
    state.clients_by_key.pop(client.key, None)
    iteration = client.iteration
    del iteration.clients[record.client_id]
    mode_of(iteration.parameters).sharing.client_removed(client, record)
    # By number: a state that was loaded from a snapshot has the tasks of a client in another order.
    for task in sorted(client.tasks.values(), key=lambda x: x.task_id):
        client.iteration.remove_reader(task, client, record.consumed.get(task.task_id))


@handlers.log_before
def _log_client_removed(state: State, log: EventLog, record: r.ClientRemoved) -> None:
    client = state.clients[record.client_id]
    log.add_of(client.iteration, "a client left", client=record.client_id)
