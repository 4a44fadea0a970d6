"""Lists of splits that the dispatcher asks a worker for, page by page."""

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from stoker.dataset.drawn_seeds import salts_by_number
from stoker.dataset.options import Options
from stoker.dataset.tree.node import Context, Node, number
from stoker.errors import FailedPreconditionError, InvalidArgumentError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.worker.pipelines.failure import describe
from stoker.service.worker.tasks.split_values import split_to_wire

PAGE_ENTRIES = 10_000
# Lists of files are sent in pages on request, so that no call of the dispatcher handles more than 1
# MiB (1 ms). (docs/decisions/038)
PAGE_BYTES = 1 << 20
"""Most splits and bytes of a page (or one split): the dispatcher handles one in 2 ms."""


Load: TypeAlias = Callable[[str, threading.Event], tuple[Node, Options]]
"""Returns a new tree of a registered dataset, and its options, as `DatasetLoader.load`."""


class SplitLister:
    """List the splits of the sources of one dataset; keep the list of the last source.

    Args:
        load: gets a dataset from the dispatcher.
        worker: the address of this worker, for errors.
        closed: set when the list is not needed any more.
    """

    def __init__(self, load: Load, worker: str, closed: threading.Event) -> None:
        self._load = load
        self._worker = worker
        self._closed = closed
        self._source: int | None = None
        self._splits: list[Any] = []

    def answer(self, request: m.ListSplits) -> m.SplitsPage | m.ListingFailed:
        """Return the page that is asked for, or the error."""
        try:
            if request.source != self._source:
                self._splits = self._list(request)
                self._source = request.source
            return self._page(request)
        except Exception as error:  # noqa: BLE001 - the iteration fails with it
            return m.ListingFailed(request.listing_id, describe(error, self._worker, 0))

    def _list(self, request: m.ListSplits) -> list[Any]:
        self._splits = []  # before the next list takes memory
        root, options = self._load(request.dataset_id, self._closed)
        numbers = number(root)
        node = {position: node for node, position in numbers.items()}.get(request.source)
        if node is None:
            raise FailedPreconditionError(f"the dataset has no source {request.source}")
        seed = request.seed if options.seed is None else options.seed
        context = Context(
            seed=seed,
            seed_given=options.seed is not None,
            salts=salts_by_number(numbers, request.salts),
            epoch=request.epoch,
            explicit_epoch=True,
            numbers=numbers,
        )
        return node.list_in_order(context) if request.in_order else node.list_splits(context)

    def _page(self, request: m.ListSplits) -> m.SplitsPage:
        size = PAGE_ENTRIES
        while True:
            splits = self._splits[request.start : request.start + size]
            values = _encode(splits, request.source)
            if len(values) <= PAGE_BYTES or len(splits) <= 1:
                return m.SplitsPage(
                    request.listing_id,
                    request.source,
                    request.start,
                    len(self._splits),
                    msgspec.Raw(values),
                )
            # Names differ in length, so the size of a page is found by trial.
            size = len(splits) // 2


def _encode(splits: list[Any], source: int) -> bytes:
    try:
        return rpc.encode(list(map(split_to_wire, splits)))
    except ValueError as error:  # InvalidArgumentError is one too
        raise InvalidArgumentError(
            f"the splits of source {source} cannot be sent: {error}"
        ) from error


class ListingThread:
    """Answer requests for pages of one list, on its own thread.

    Args:
        load: gets a dataset from the dispatcher.
        worker: the address of this worker, for errors.
        send: called on the thread with each answer.
    """

    def __init__(
        self, load: Load, worker: str, send: Callable[[m.SplitsPage | m.ListingFailed], None]
    ) -> None:
        self._closed = threading.Event()
        self._requests: queue.SimpleQueue[m.ListSplits | None] = queue.SimpleQueue()
        self._lister = SplitLister(load, worker, self._closed)
        self._send = send
        threading.Thread(target=self._run, name="stoker-list", daemon=True).start()

    def ask(self, request: m.ListSplits) -> None:
        """Send the page that is asked for, as soon as it is listed."""
        self._requests.put(request)

    def close(self) -> None:
        """End without waiting for a listing that runs."""
        self._closed.set()
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            answer = self._lister.answer(request)
            if self._closed.is_set():
                return
            self._send(answer)
