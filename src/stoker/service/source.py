"""The node that reads a job of a service, wherever in a tree it stands."""

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Iterator

from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.statistics import Statistics
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.splits import Splits, Unsplittable
from stoker.elements.spec import Spec
from stoker.service import messages as m
from stoker.service.client.route import BEST_FIRST
from stoker.service.client.shell import ServiceStream
from stoker.wire.transports import get_transport
from stoker.wire.transports.local import process_token

for _name in BEST_FIRST[:-1]:  # with the dataset, not while its first element is waited for
    get_transport(_name)


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a job is read: everything about a distributed dataset that is not its structure.

    Attributes:
        registration: what to read, registered if it is new; ``None``: `dataset_id` exists.
    """

    address: str
    job: str
    named: bool
    parameters: m.JobParameters
    max_outstanding: int | None
    transport: str | None
    connect_timeout: float
    buffer_bytes: int
    registration: m.RegisterDataset | None
    dataset_id: str = ""

    def open(self, repetition: tuple[int, ...], spec: Spec, statistics: Statistics) -> Stream:
        """Begins to read one repetition of the job."""
        hello = m.ClientHello(
            m.PROTOCOL_MIN,
            m.PROTOCOL_MAX,
            self.dataset_id,
            self.job,
            self.parameters,
            repetition,
            self.named,
            process_token(),
            registration=self.registration,
        )
        return ServiceStream(
            hello,
            self.address,
            spec,
            self.max_outstanding,
            self.transport,
            self.connect_timeout,
            self.buffer_bytes,
            statistics,
        )


class Distributed(Node, frozen=True, eq=False, kw_only=True, weakref=True):
    """A source that reads a job of a service.

    Attributes:
        reading: a `Reading`.
        spec: the element_spec.
        structure: of the dataset the service runs, as job agreement compares it.
    """

    kind = "distribute"
    unrepeatable = (
        "what it yields depends on what other machines do; take the state of a dataset that is "
        "read locally"
    )

    reading: Pickled
    spec: Pickled
    structure: bytes
    processing_mode: str
    size: int

    def element_spec(self) -> Spec:
        return self.spec.value

    def cardinality(self) -> int:
        return self.size

    def splits(self) -> Splits:
        return Unsplittable("it reads from another service")

    def open(self, context: Context) -> Stream:
        repetition = context.epoch if context.explicit_epoch else (next(_passes_of(self)),)
        reading: Reading = self.reading.value
        return reading.open(repetition, self.spec.value, context.statistics)


_passes: "weakref.WeakKeyDictionary[Node, Iterator[int]]" = weakref.WeakKeyDictionary()
_passes_lock = threading.Lock()


def _passes_of(node: Node) -> Iterator[int]:
    """The pass counter of a distributed dataset: each opening is a new iteration of its job."""
    with _passes_lock:
        return _passes.setdefault(node, itertools.count())
