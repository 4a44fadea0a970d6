"""Load the datasets that a worker runs from the dispatcher."""

import logging
import threading

from stoker.dataset.options import Options
from stoker.dataset.tree.node import Node
from stoker.dataset.tree.wire_form import decode_tree
from stoker.errors import UnavailableError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.worker.pipelines.dataset_cache import DatasetCache

logger = logging.getLogger("stoker.worker")

CALL_SECONDS = 300.0

CALL_AGAIN_SECONDS, CALL_AGAIN_LONGEST = 0.05, 2.0
"""Seconds between two calls to a dispatcher that cannot be reached; doubles with each."""


class DatasetLoader:
    """Gets registered datasets; callable from any thread.

    Args:
        dispatcher_address: host and port.
        peer_timeout: seconds after which a dispatcher that sends nothing is unreachable.

    Attributes:
        cache: the datasets that tasks use.
        stopping: the worker stops, so that it tries nothing again.
    """

    def __init__(self, dispatcher_address: str, peer_timeout: float) -> None:
        self.cache = DatasetCache(self._fetch)
        self.stopping = False
        self._dispatcher_address = dispatcher_address
        self._peer_timeout = peer_timeout

    def load(self, dataset_id: str, closed: threading.Event | None = None) -> tuple[Node, Options]:
        """Return a new tree of a registered dataset, and its options.

        While the dispatcher cannot be reached, try again until `closed`, or without it until the
        worker stops: a broken connection must cost neither a task nor an element.
        """
        waiting = closed or threading.Event()
        pause = CALL_AGAIN_SECONDS
        while True:
            try:
                reply = self.cache.get(dataset_id)
                break
            except UnavailableError as error:
                if waiting.wait(pause) or (closed is None and self.stopping):
                    raise
                logger.warning("cannot get dataset %s, trying again: %s", dataset_id, error)
                # Many workers wait for one dispatcher that restarts.
                pause = min(2 * pause, CALL_AGAIN_LONGEST)
        return decode_tree(reply.tree), reply.options

    def _fetch(self, dataset_id: str) -> m.DatasetReply:
        answer = rpc.call(
            self._dispatcher_address,
            m.GetDataset(dataset_id),
            CALL_SECONDS,
            self._peer_timeout,
        )
        assert isinstance(answer, m.DatasetReply)
        return answer
