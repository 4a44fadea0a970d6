"""The answer to a client that has read all that is left for it."""

import math

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import ClientEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.sessions.sessions import Sessions


def end_state(client: ClientEntry, sessions: Sessions, now: float) -> m.EndState:
    """Return who may still hold elements of the iteration that `client` reads.

    Args:
        client: the client that asks.
        sessions: of the clients.
        now: seconds.
    """
    iteration, mode = client.iteration, mode_of(client.iteration.parameters)
    tasks = [x for x in iteration.by_worker.values() if not x.over and mode.reaches(client, x)]
    if not tasks or iteration.stopped:
        return m.EndState(final=True)
    holders = {x for task in tasks for x in task.readers | task.leaving} - {client.client_id}
    silent = [x for x in holders if not sessions.is_live(x, now)]
    seconds = max((sessions.leases.remaining(x, now) for x in silent), default=0.0)
    # A lease that has ended is noticed by the next tick.
    return m.EndState(False, bool(holders), max(1, math.ceil(1000 * seconds)) if silent else 0)
