"""Probes of a worker on its data connections: identity, clock, round trip and throughput."""

import time
from collections.abc import Callable
from contextlib import closing

from stoker.cli.doctor.answers import Answer, timed
from stoker.errors import StokerError, UnavailableError, WireError
from stoker.wire import frames as f
from stoker.wire.transports import Connection, get_transport

ROUND_TRIPS = 5
"""Round trips that are timed; the shortest counts, as this machine or the worker may be busy."""

ROUNDS = ((1, 64 << 10), (1, 512 << 10), (4, 1 << 20), (32, 1 << 20))
"""Elements and bytes of each that are read to measure the throughput, one after the other."""

LONG_ROUND_SECONDS = 0.15
"""A round of this length measures well; a longer one would take from those who read the worker."""


class NoWorkerError(StokerError):
    """The server at an address did not answer as a worker of stoker; the text says what it did."""


def probe(
    protocol: str, address: str, timeout: float, clock: Callable[[], float]
) -> Answer[f.WorkerProbeReply]:
    """Connect to a worker and return its answer with the shortest of several round trips.

    Args:
        protocol: a transport.
        address: an address of it.
        timeout: seconds to connect, and again for each answer.
        clock: the time of day of this machine.

    Raises:
        UnavailableError, PermissionDeniedError: if it cannot be connected.
        NoWorkerError: if it did not answer as a worker.
    """
    with closing(get_transport(protocol).connect(address, timeout)) as connection:
        try:
            answers = [
                timed(lambda: _ask(connection, f.WorkerProbe(), timeout), clock)
                for _ in range(ROUND_TRIPS)
            ]
        except TimeoutError:
            raise NoWorkerError(f"sent nothing for {timeout:g} s") from None
        except WireError as error:
            raise NoWorkerError(f"answered in another protocol: {error}") from error
        except UnavailableError as error:
            raise NoWorkerError("closed the connection without an answer") from error
    return min(answers, key=lambda answer: answer.round_trip)


def _ask(connection: Connection, probe: f.WorkerProbe, timeout: float) -> f.WorkerProbeReply:
    connection.send(probe)
    reply = connection.receive(timeout)
    if isinstance(reply, f.Bye):
        raise UnavailableError("the worker refused the probe")
    if not isinstance(reply, f.WorkerProbeReply):
        raise WireError(f"the answer to a probe was {type(reply).__name__}")
    return reply


def measure_throughput(protocol: str, address: str, timeout: float, round_trip: float) -> float:
    """Return the bytes per second that arrive from a worker.

    About 39 MB are read at most, in less than a second. Through shared memory only 5 MB are, as the
    worker lends memory that its tasks use too.

    Args:
        protocol: a transport.
        address: an address of it.
        timeout: seconds to connect, and again for each round.
        round_trip: seconds, which are no part of the time that the bytes take.

    Raises:
        StokerError: if the connection breaks.
        TimeoutError: if not even the first 64 KiB arrive in `timeout` seconds.
    """
    rate = 0.0
    with closing(get_transport(protocol).connect(address, timeout)) as connection:
        for elements, element_bytes in ROUNDS[:3] if protocol == "shm" else ROUNDS:
            began = time.monotonic()
            try:
                _read_round(connection, f.WorkerProbe(elements, element_bytes), began + timeout)
            except TimeoutError:
                if not rate:
                    raise
                break
            seconds = time.monotonic() - began
            # A round that took little more than a round trip has measured nothing else.
            seconds = max(seconds - round_trip, seconds / 4)
            rate = elements * element_bytes / seconds  # the largest round is the most accurate
            if seconds >= LONG_ROUND_SECONDS:
                break
    return rate


def _read_round(connection: Connection, probe: f.WorkerProbe, deadline: float) -> None:
    _ask(connection, probe, deadline - time.monotonic())
    for _ in range(probe.elements):
        frame = connection.receive(deadline - time.monotonic())
        if not isinstance(frame, f.Frame):
            raise WireError(f"a probe was answered by {type(frame).__name__}")
