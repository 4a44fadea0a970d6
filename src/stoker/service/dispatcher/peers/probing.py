"""The dispatcher's answer to a probe, which `stoker doctor` sends."""

from stoker.service import messages as m
from stoker.service.dispatcher.state.state import State
from stoker.version import VERSION


def probe_reply(state: State, clock: float, journaled: bool) -> m.ProbeReply:
    """Return the answer to a probe.

    Args:
        state: read only.
        clock: the time of day of this host, in seconds since 1970.
        journaled: the records of `state` are stored.
    """
    return m.ProbeReply(
        m.PROTOCOL_MIN,
        m.PROTOCOL_MAX,
        VERSION,
        clock=clock,
        workers=[
            m.WorkerPlace(
                worker.added.worker_id,
                worker.added.address,
                worker.added.data_transfer_addresses,
                worker.added.versions,
                worker.draining,
            )
            for worker in state.workers.values()
        ],
        journaled=journaled,
    )
