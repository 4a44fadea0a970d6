"""Nodes: the immutable tree a dataset is, the registry of their kinds and the tree's wire form."""

import functools
import operator
import os
import sys
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from stoker.dataset.opaque import Opaque
from stoker.dataset.values.spec import Spec
from stoker.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from stoker.dataset.execute import Context
    from stoker.dataset.stream import Stream

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2

SHARD_HINT = -1
"""Stands for the shard's place under ShardingPolicy.HINT; as tf.data.experimental.SHARD_HINT."""


ENDLESS = 2**62
"""The `count` of an index source without end; no pass comes near it."""


class IndexSplits(msgspec.Struct, frozen=True, tag="index"):
    """The source is `count` elements that can be cut anywhere; `ENDLESS`: it has no end."""

    count: int


class ListedSplits(msgspec.Struct, frozen=True, tag="listed"):
    """The source's splits are known only where its data is: a worker lists them."""


class Unsplittable(msgspec.Struct, frozen=True, tag="unsplittable"):
    """The source can only be read whole; `why` completes "... cannot be split: "."""

    why: str


Splits = IndexSplits | ListedSplits | Unsplittable


class Source(msgspec.Struct, frozen=True):
    """A source of a tree, as the dispatcher sees it: it travels when a dataset is registered."""

    number: int
    kind: str
    site: str
    splits: IndexSplits | ListedSplits | Unsplittable


class Node(msgspec.Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """One step of a pipeline.

    A subclass names its wire tag in `kind` and is registered by being defined. Fields annotated
    `Node` or ``tuple[Node, ...]`` (at most one, the last) are its inputs, fields annotated `Opaque`
    (or ``Opaque | None``) travel as blobs nobody but a worker opens, all others are plain msgspec
    types. Nodes compare by identity.

    Attributes:
        kind: the wire tag.
        tuning: fields that change how fast it runs, never what it yields.
        unrepeatable: why a pass cannot be repeated, and so not be continued from a state;
            completes "... has no state: ". Empty where it can.
        passes_on: what it yields are its inputs' elements, each once, and it keeps none of them.
        site: the user's line that built it, such as ``"train.py:12"``; not part of the structure.
    """

    kind: ClassVar[str]
    tuning: ClassVar[frozenset[str]] = frozenset()
    unrepeatable: ClassVar[str] = ""
    passes_on: ClassVar[bool] = False
    site: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kind = cls.__dict__.get("kind")
        if kind is not None:
            _registry[kind] = cls

    @property
    def inputs(self) -> "tuple[Node, ...]":
        """The nodes this one reads, in the order of its fields."""
        layout = _layout(type(self))
        several = getattr(self, layout.several) if layout.several else ()
        return (*(getattr(self, name) for name in layout.inputs), *several)

    def with_inputs(self, inputs: "Sequence[Node]") -> Self:
        """This node with these in place of its `inputs`; itself if they are the same."""
        if all(map(operator.is_, inputs, self.inputs)):
            return self
        layout = _layout(type(self))
        fixed = len(layout.inputs)
        changes: dict[str, Any] = dict(zip(layout.inputs, inputs[:fixed], strict=True))
        if layout.several is not None:
            changes[layout.several] = tuple(inputs[fixed:])
        return msgspec.structs.replace(self, **changes)

    def element_spec(self) -> Spec:
        """What is known of the elements; user code is never run to guess it."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """How many elements: a count, INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        raise NotImplementedError

    def inputs_per_element(self) -> int | None:
        """How many elements of its input make each of its own, whatever they are.

        The last may be made of fewer. ``None``: that is known only by reading, or it has not one
        input. A `zip` of such nodes can be split (`splitting.py`).
        """
        return None

    def open(self, context: "Context") -> "Stream":
        """Opens the node and what it reads for one pass."""
        raise NotImplementedError

    def splits(self) -> Splits | None:
        """How the source can be cut; ``None`` for a node that is not a source.

        A node with inputs that has splits stands for all the sources below it.
        """
        return None

    def split_inputs(self) -> "tuple[Node, ...]":
        """The inputs whose sources are handed out in splits; each task reads the others whole."""
        return self.inputs

    def list_splits(self, context: "Context") -> list[Any]:
        """The splits of a `ListedSplits` source as builtin values; runs where the data is."""
        raise NotImplementedError


_registry: dict[str, type[Node]] = {}


class _Layout(msgspec.Struct, frozen=True):
    """A node class's fields by the way they travel."""

    inputs: tuple[str, ...]
    several: str | None
    opaques: tuple[str, ...]
    plain: dict[str, Any]


@functools.cache
def _layout(cls: type[Node]) -> _Layout:
    inputs: list[str] = []
    several: str | None = None
    opaques: list[str] = []
    plain: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for name in cls.__struct_fields__:
        hint = hints[name]
        if hint is Node:
            inputs.append(name)
        elif hint == tuple[Node, ...]:
            several = name
        elif hint is Opaque or Opaque in typing.get_args(hint):
            opaques.append(name)
        elif name != "site":
            plain[name] = hint
    return _Layout(tuple(inputs), several, tuple(opaques), plain)


class WireNode(msgspec.Struct, frozen=True, array_like=True):
    """A node as it travels; `inputs` are positions in the list of nodes, all before its own."""

    kind: str
    inputs: list[int]
    fields: msgspec.Raw
    opaques: dict[str, bytes]
    site: str


def number(root: Node) -> dict[Node, int]:
    """Every node's number: its position in the wire form, inputs first, shared nodes once."""
    numbers: dict[Node, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        waiting = [child for child in reversed(node.inputs) if child not in numbers]
        if waiting:
            stack.extend(waiting)
        else:
            numbers[node] = len(numbers)
            stack.pop()
    return numbers


def encode_tree(root: Node) -> bytes:
    """The tree in its wire form; user functions are pickled here.

    Raises:
        InvalidArgumentError: a function cannot be pickled, or a field has no wire form.
    """
    numbers = number(root)
    return msgspec.msgpack.encode([_wire_node(node, numbers) for node in numbers])


def _wire_node(node: Node, numbers: Mapping[Node, int]) -> WireNode:
    layout = _layout(type(node))
    opaques = {name: getattr(node, name) for name in layout.opaques}
    return WireNode(
        kind=node.kind,
        inputs=[numbers[child] for child in node.inputs],
        fields=_plain_fields(node),
        opaques={name: opaque.blob for name, opaque in opaques.items() if opaque is not None},
        site=node.site,
    )


def decode_tree(data: bytes) -> Node:
    """The tree of a wire form; no function is unpickled before it is used.

    Raises:
        NotFoundError: a node's kind is not known here.
        InvalidArgumentError: the bytes are not a tree.
    """
    nodes: list[Node] = []
    for wire in decode_wire_nodes(data):
        nodes.append(_node_of(wire, nodes))
    return nodes[-1]


def decode_wire_nodes(data: bytes) -> list[WireNode]:
    """The tree's nodes with fields and blobs as raw bytes: works for kinds unknown here.

    Raises:
        InvalidArgumentError: the bytes are not a tree.
    """
    try:
        wire_nodes = msgspec.msgpack.decode(data, type=list[WireNode])
    except msgspec.MsgspecError as error:
        raise InvalidArgumentError(f"these bytes are not a dataset: {error}") from error
    if not wire_nodes:
        raise InvalidArgumentError("these bytes are not a dataset: it has no nodes")
    for position, wire in enumerate(wire_nodes):
        if any(not 0 <= child < position for child in wire.inputs):
            raise InvalidArgumentError(
                f"these bytes are not a dataset: node {position} ({wire.kind}) reads {wire.inputs}"
            )
    return wire_nodes


def _class_of(kind: str) -> type[Node] | None:
    if kind not in _registry:
        from stoker.dataset import nodes  # those that were not used here are not yet imported

        nodes.register_all()
    return _registry.get(kind)


def _node_of(wire: WireNode, nodes: list[Node]) -> Node:
    cls = _class_of(wire.kind)
    if cls is None:
        raise NotFoundError(
            f"node kind {wire.kind!r} is not known to this stoker; use a version that has it "
            f"(known: {', '.join(sorted(_registry))})"
        )
    layout = _layout(cls)
    fixed = len(layout.inputs)
    if len(wire.inputs) < fixed or (len(wire.inputs) > fixed and layout.several is None):
        raise InvalidArgumentError(
            f"node {wire.kind!r} reads {fixed} nodes, but {len(wire.inputs)} are given"
        )
    values: dict[str, Any] = {"site": wire.site}
    try:
        fields = msgspec.msgpack.decode(wire.fields, type=dict[str, Any])
        for name, value in fields.items():
            if name in layout.plain:
                values[name] = msgspec.convert(value, layout.plain[name])
        inputs = [nodes[child] for child in wire.inputs]
        values |= zip(layout.inputs, inputs[:fixed], strict=True)
        if layout.several is not None:
            values[layout.several] = tuple(inputs[fixed:])
        for name in layout.opaques:
            blob = wire.opaques.get(name)
            values[name] = None if blob is None else Opaque.from_blob(blob)
        return cls(**values)
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidArgumentError(f"a {wire.kind!r} node has the wrong fields: {error}") from error


def structure_of(tree: bytes | Node, *, tuning: bool = True) -> bytes:
    """What clients of one job must agree on: kinds, inputs and plain fields.

    Neither functions nor sites are in it. Works on the wire form without knowing its kinds.

    Args:
        tree: nodes, or their wire form.
        tuning: with the fields that only change how fast it runs; False takes nodes only.

    Raises:
        InvalidArgumentError: the bytes are not a tree.
    """
    if isinstance(tree, Node):
        numbers = number(tree)
        parts = [
            (node.kind, [numbers[child] for child in node.inputs], _plain_fields(node, tuning))
            for node in numbers
        ]
    else:
        parts = [(wire.kind, wire.inputs, wire.fields) for wire in decode_wire_nodes(tree)]
    return msgspec.msgpack.encode(parts)


def _plain_fields(node: Node, tuning: bool = True) -> msgspec.Raw:
    fields = {
        name: getattr(node, name)
        for name in _layout(type(node)).plain
        if tuning or name not in node.tuning
    }
    return msgspec.Raw(msgspec.msgpack.encode(fields))


def source_summary(root: Node) -> list[Source]:
    """The sources that are handed out in splits, in the order of their numbers."""
    found: dict[Node, Splits] = {}
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        splits = node.splits()
        if splits is None:
            stack.extend(node.split_inputs())
        else:
            found[node] = splits
    return [
        Source(position, node.kind, node.site, found[node])
        for node, position in number(root).items()
        if node in found
    ]


_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


def call_site() -> str:
    """``"file:line"`` of the innermost frame outside stoker.

    A file in the working directory is named relative to it.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{_file_name(frame.f_code.co_filename)}:{frame.f_lineno}"


@functools.lru_cache(maxsize=1024)  # asking for the working directory is a system call
def _file_name(path: str) -> str:
    with suppress(OSError):  # the working directory may be gone
        path = path.removeprefix(str(Path.cwd()) + os.sep)
    return path
