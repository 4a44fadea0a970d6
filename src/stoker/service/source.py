"""The node that reads a job of a service."""

import itertools
import threading
import weakref
from collections.abc import Iterator

import msgspec

from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.tree.splits import Splits, Unsplittable
from stoker.elements.spec import Spec
from stoker.service.client.route import BEST_FIRST
from stoker.service.client.shell import ServiceStream
from stoker.wire.transports import get_transport
from stoker.wire.transports.local import process_token

for _name in BEST_FIRST[:-1]:  # imported now, not during the first read
    get_transport(_name)


class Distributed(Node, frozen=True, eq=False, kw_only=True, weakref=True):
    """A source node that reads a job of a service.

    Attributes:
        read_options: a `ReadOptions`.
        hello: a `ClientHello` that names the job and its dataset; the epoch is added by `open`.
        spec: the element_spec.
        classes: the `RecordClasses` of the program, which elements are rebuilt with.
        structure: of the dataset the service runs, as job agreement compares it.
        size: the cardinality, which holds whatever happens to workers.
        length: the cardinality of an epoch without losses, if no other client shares it.
    """

    kind = "distribute"
    unrepeatable = (
        "what it yields depends on what other machines do; take the state of a dataset that is "
        "read locally"
    )

    read_options: Pickled
    hello: Pickled
    spec: Pickled
    classes: Pickled
    structure: bytes
    processing_mode: str
    size: int
    length: int = UNKNOWN_CARDINALITY

    def element_spec(self) -> Spec:
        return self.spec.value

    def cardinality(self) -> int:
        return self.size

    def counted(self) -> Node:
        if self.size != UNKNOWN_CARDINALITY:
            return self
        return msgspec.structs.replace(self, size=self.length)

    def splits(self) -> Splits:
        return Unsplittable("it reads from another service")

    def open(self, context: Context) -> Stream:
        epoch = context.epoch if context.explicit_epoch else (next(_epochs_of(self)),)
        hello = msgspec.structs.replace(self.hello.value, epoch=epoch, process=process_token())
        return ServiceStream(
            hello,
            self.read_options.value,
            self.spec.value,
            self.classes.value.classes,
            context.statistics,
        )


_epochs: "weakref.WeakKeyDictionary[Node, Iterator[int]]" = weakref.WeakKeyDictionary()
_epochs_lock = threading.Lock()


def _epochs_of(node: Node) -> Iterator[int]:
    """Return the epoch counter of a distributed dataset: each `open` starts another epoch."""
    with _epochs_lock:
        return _epochs.setdefault(node, itertools.count())
