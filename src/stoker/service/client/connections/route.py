"""Choice of the transport by which a client reaches a worker."""

import logging
import threading
import time
from collections.abc import Iterable

from stoker.errors import FailedPreconditionError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.wire.transports import Connection, get_transport
from stoker.wire.transports.local import process_token

logger = logging.getLogger("stoker.client")

BEST_FIRST = ("local", "shm", "tcp")
"""Transports that are tried without being named. "grpc" is not one: it does not survive a fork."""

_NETWORK = frozenset({"tcp", "grpc"})


class Route:
    """Connect a client to workers, by the named transport or the best that works.

    Connecting shows whether a worker shares this host or process, and what the network lets pass.
    A transport that failed where another one worked is not tried again, so that reconnecting is as
    fast as connecting.

    Args:
        data_transfer_protocol: the transport to try first, if any; a warning is logged once if it
            cannot be used.
    """

    def __init__(self, data_transfer_protocol: str | None) -> None:
        self._data_transfer_protocol = data_transfer_protocol
        self._lock = threading.Lock()
        self._useless: set[tuple[str, str]] = set()
        self._warned = False

    def connect(self, task: m.TaskInfo, timeout: float) -> Connection:
        """Return a connection to the worker of `task`.

        Args:
            task: the task, with the addresses of its worker.
            timeout: seconds, shared by the transports that are tried.

        Raises:
            UnavailableError: if no transport can connect now.
            FailedPreconditionError: if this process can use none of the worker's transports.
        """
        deadline = time.monotonic() + timeout
        failed: dict[tuple[str, str], StokerError] = {}
        places = self._places(task)
        for tried, place in enumerate(places):
            # A network that drops packets must not leave the next transport without time.
            patience = (deadline - time.monotonic()) / (len(places) - tried)
            try:
                connection = get_transport(place[0]).connect(place[1], patience)
            except StokerError as error:
                failed[place] = error
                continue
            self._succeeded(place, failed, task)
            connection.protocol = place[0]
            return connection
        with self._lock:
            # No transport is known to work any more: try all of them next time.
            self._useless.difference_update(task.data_transfer_addresses.items())
        reported = {place[0]: x for place, x in failed.items() if self._is_reported(place, failed)}
        if len(reported) == 1:
            [only] = reported.values()
            raise only
        reasons = "; ".join(f"{name}: {error}" for name, error in reported.items())
        raise UnavailableError(f"no transport reaches worker {task.worker}: {reasons}")

    def _is_reported(self, place: tuple[str, str], failed: Iterable[tuple[str, str]]) -> bool:
        """Return whether the error that no transport works contains that of this one.

        Shared memory fails whenever the worker is on another host, which explains nothing.
        """
        network = any(name in _NETWORK for name, _ in failed)
        return place[0] in _NETWORK or place[0] == self._data_transfer_protocol or not network

    def _places(self, task: m.TaskInfo) -> list[tuple[str, str]]:
        """Return the transports and addresses to try for a task, in order."""
        named, offered = self._data_transfer_protocol, task.data_transfer_addresses
        names = BEST_FIRST if named is None else (named, *BEST_FIRST)
        usable = {name: offered[name] for name in names if name in offered}
        # The address of "local" names the process: another one cannot use it.
        if not usable.get("local", "").startswith(f"{process_token()}/"):
            usable.pop("local", None)
        if not usable:
            by = ", ".join(sorted(offered)) or "nothing"
            remedy = "install the same stoker version on both"
            if "grpc" in offered:
                remedy = "'grpc' is used only if `data_transfer_protocol='grpc'` is given here too"
            raise FailedPreconditionError(
                f"worker {task.worker} serves elements by {by}, none of which this process "
                f"can use ({', '.join(names)}); {remedy}"
            )
        with self._lock:
            found = [place for place in usable.items() if place not in self._useless]
        return found or list(usable.items())

    def _succeeded(
        self, place: tuple[str, str], failed: dict[tuple[str, str], StokerError], task: m.TaskInfo
    ) -> None:
        reasons = {name: str(error) for (name, _), error in failed.items()}
        with self._lock:
            self._useless.update(failed)
            # Once per reader: with 128 workers each would log the same.
            warn = self._data_transfer_protocol not in (None, place[0]) and not self._warned
            self._warned = self._warned or warn
        if not warn:
            logger.debug("worker %s is read over %s: %s", task.worker, place[0], reasons)
            return
        if self._data_transfer_protocol not in task.data_transfer_addresses:
            why = "it does not serve it"
        else:
            why = reasons.get(self._data_transfer_protocol, "it runs in another process")
        logger.warning(
            "data_transfer_protocol %r cannot be used with worker %s (%s); reading it over %s",
            self._data_transfer_protocol,
            task.worker,
            why,
            place[0],
        )
