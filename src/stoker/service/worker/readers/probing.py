"""The worker's answer to a probe, which `stoker doctor` sends on a data connection."""

import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.service.process.host import host_id
from stoker.version import VERSION
from stoker.wire import frames as f


def probe_reply(worker: str, worker_id: int, dispatcher: str, clock: float) -> f.WorkerProbeReply:
    """Return the answer to a probe.

    Args:
        worker: the address of this worker.
        worker_id: the id that the dispatcher assigned; 0 if none.
        dispatcher: the address of the dispatcher.
        clock: the time of day of this host, in seconds since 1970.
    """
    return f.WorkerProbeReply(
        f.PROTOCOL_MIN,
        f.PROTOCOL_MAX,
        worker,
        worker_id=worker_id,
        dispatcher=dispatcher,
        stoker=VERSION,
        clock=clock,
        host=host_id(),
    )


def probe_frames(probe: f.WorkerProbe) -> list[f.Frame]:
    """Return the frames that a probe asks for; they refer to the same memory."""
    array = _random_bytes()[: probe.element_bytes]
    return [
        f.Frame(number, [array], nbytes=array.nbytes, shared=True)
        for number in range(probe.elements)
    ]


@cache
def _random_bytes() -> npt.NDArray[Any]:
    # A link that compresses would be measured too fast with zeros.
    return np.frombuffer(os.urandom(f.MAX_PROBE_BYTES), np.uint8)
