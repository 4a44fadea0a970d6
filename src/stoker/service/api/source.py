"""The node that reads a job of a service."""

import dataclasses
import hashlib
import itertools
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.dataset.copies import copied_at
from stoker.dataset.drawn_seeds import adopt_salts, salts_of
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node, RemoteEpoch, number
from stoker.dataset.tree.splits import Splits, Unsplittable
from stoker.dataset.tree.wire_form import decode_structure
from stoker.elements.spec import Spec
from stoker.errors import StokerError
from stoker.service import messages as m
from stoker.service.client.connections.route import BEST_FIRST
from stoker.service.client.shell import ServiceStream
from stoker.service.control import rpc
from stoker.service.process.host import host_id
from stoker.service.rules.checks import check_repetition
from stoker.service.rules.processing_modes import ShardingPolicy, mode_name
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
        classes: the `RecordClasses` of the program, by which elements are rebuilt.
        structure: of the dataset that the service runs, in the form that job agreement compares.
        size: the cardinality, which holds whatever happens to workers, unless `asks_size`.
        length: the cardinality of an epoch without losses, read by this client only.
        asks_size: ask the dispatcher for the cardinality when needed.
        positions: the number of positions of a deterministic epoch, ENDLESS without end; ``None``
            in other modes.
        sites: of the nodes of the dataset, if known.
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
    asks_size: bool = False
    positions: int | None = None
    sites: tuple[str, ...] = ()

    def element_spec(self) -> Spec:
        return self.spec.value

    def function_name(self) -> str:
        return mode_name(ShardingPolicy[self.processing_mode])

    def shown_kind(self) -> str:
        return f"{self.kind}({self.function_name()})"

    def cardinality(self) -> int:
        return _learned_size(self) if self.asks_size else self.size

    def counted(self) -> Node:
        if self.size != UNKNOWN_CARDINALITY or self.asks_size:
            return self
        return msgspec.structs.replace(self, size=self.length)

    def remote_epoch(self) -> RemoteEpoch | None:
        if self.positions is None:
            return None
        share = self.read_options.value.share()
        return RemoteEpoch(_tree_of(self), self.positions, share.count)

    def division(self) -> tuple[int, int] | None:
        share = self.read_options.value.share()
        return None if self.positions is None or share.count == 1 else (share.count, share.index)

    def remote_tree(self) -> bytes:
        registration = self.hello.value.registration
        return b"" if registration is None else registration.tree

    def splits(self) -> Splits:
        return Unsplittable(
            "it reads from another service (tf.data: Cannot create split providers for dataset of "
            "type DataServiceDataset)"
        )

    def open(self, context: Context) -> Stream:
        first, explicit = _is_first(self), context.explicit_epoch
        by_position = self.positions is not None
        # A deterministic epoch has the number that it has without a service.
        numbered = explicit or by_position
        epoch = context.epoch if numbered else (next(_epochs_of(self)),)
        hello = msgspec.structs.replace(
            self.hello.value,
            epoch=epoch,
            process=process_token(),
            copied=_copy_time(self, context) if first and not explicit else None,
            draws=self._draws(context) if by_position else None,
        )
        if by_position and hello.consumer_index is not None and not hello.named:
            hello = msgspec.structs.replace(hello, job=_job_of_consumers(hello))
        if hello.parameters.use_cross_trainer_cache:
            check_repetition(epoch)
        # With the length, `advance` knows the end before a dispatcher has answered.
        options = dataclasses.replace(
            self.read_options.value,
            base=context.bases.get(context.numbers[self], 0),
            total=self.positions,
        )
        stream = ServiceStream(
            hello,
            options,
            self.spec.value,
            classes=self.classes.value.classes,
            statistics=context.statistics,
            meters=context.meters,
        )
        context.meters.add_service(self, context.numbers, stream.latest)
        return stream

    def _draws(self, context: Context) -> m.Draws:
        """Return the draws of the dataset's nodes, by their places in the trainer's pipeline."""
        nodes = number(_tree_of(self))
        return m.Draws(
            context.seed,
            seed_given=context.seed_given,
            salts=salts_of(nodes),
            # On a worker that reads another service, numbers are those of its own tree.
            first_number=max(0, context.numbers[self] - len(nodes) + 1),
        )


# A random name would have to be agreed on, and a job of its own for each consumer would make each
# worker draw all rows for each of them.
def _job_of_consumers(hello: m.ClientHello) -> str:
    """Return the job of consumers without a `job_name`, which follows from what they read."""
    dataset = hello.registration.digest if hello.registration else hello.dataset_id
    content = msgspec.msgpack.encode((dataset, hello.parameters, hello.draws))
    return f"positions:{hashlib.blake2b(content, digest_size=16).hexdigest()}"


# By node and weakly: salts that are adopted from a state are kept in the tree.
_trees: "weakref.WeakKeyDictionary[Node, Node]" = weakref.WeakKeyDictionary()


def _tree_of(node: Distributed) -> Node:
    """Return the tree that the service runs, without functions."""
    tree = _trees.get(node)
    if tree is None:
        tree = decode_structure(node.structure, node.sites)
        draws = node.hello.value.draws
        adopt_salts(number(tree), () if draws is None else draws.salts)
        # Another thread may have made one meanwhile, whose salts others know already.
        tree = _trees.setdefault(node, tree)
    return tree


def changed(node: Distributed, **fields: Any) -> Distributed:
    """Return a node with other fields, which shares the salts of the node."""
    result = msgspec.structs.replace(node, **fields)
    if node.positions is not None:
        _trees[result] = _tree_of(node)
    return result


_SIZE_TIMEOUT = 1.0
"""Seconds to wait for a cardinality, which is unknown without an answer."""

# By node and weakly: a dataset object is asked for once, and may be collected.
_sizes: "weakref.WeakKeyDictionary[Node, int]" = weakref.WeakKeyDictionary()


def _learned_size(node: Distributed) -> int:
    """Return the cardinality that the dispatcher knows; unknown without an answer."""
    size = _sizes.get(node)
    if size is None:
        question = m.GetDataset(node.hello.value.dataset_id, with_tree=False)
        try:
            reply = rpc.call(node.read_options.value.dispatcher_address, question, _SIZE_TIMEOUT)
        # Without an answer the question is asked again by the next call: a dispatcher may still
        # start.
        except StokerError:  # reading raises the error, if it lasts
            return UNKNOWN_CARDINALITY
        assert isinstance(reply, m.DatasetReply)
        finite = reply.options.finite_coordinated
        options = node.read_options.value
        size = _sizes[node] = options.cardinality(reply.size, finite_coordinated=finite)
    return size


def _copy_time(node: Distributed, context: Context) -> m.CopyTime:
    """Return when the copy was made that opens its first epoch.

    A pass of `repeat` is as late as any original: later epochs follow.
    """
    # Clocks of hosts may differ, so the dispatcher compares ages on one host only.
    # (docs/decisions/052)
    at = copied_at(node) if len(context.epoch) == 1 else -math.inf
    return m.CopyTime(time.monotonic() - at, host_id(), at)


_epochs: "weakref.WeakKeyDictionary[Node, Iterator[int]]" = weakref.WeakKeyDictionary()
_opened: "weakref.WeakSet[Node]" = weakref.WeakSet()
_lock = threading.Lock()


def _is_first(node: Node) -> bool:
    """Return whether this copy of a distributed dataset opens its first epoch."""
    with _lock:
        if node in _opened:
            return False
        _opened.add(node)
        return True


def _epochs_of(node: Node) -> Iterator[int]:
    """Return the epoch counter of a distributed dataset: each `open` starts another epoch."""
    with _lock:
        # Not atomic without the lock: two threads that open the dataset need one counter.
        return _epochs.setdefault(node, itertools.count())


def _begin_in_child() -> None:
    global _lock, _opened
    _lock = threading.Lock()  # another thread of the parent may have held the lock
    _opened = weakref.WeakSet()


os.register_at_fork(after_in_child=_begin_in_child)
