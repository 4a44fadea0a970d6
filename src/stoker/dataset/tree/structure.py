"""The parts of a tree that must agree between clients of a job and between saved states."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import msgspec

from stoker.dataset.tree.field_codec import encode_fields
from stoker.dataset.tree.node import Node, layout_of, number
from stoker.dataset.tree.splits import Source, Splits
from stoker.errors import InvalidArgumentError

Part: TypeAlias = tuple[str, list[int], msgspec.Raw]
"""The kind, the inputs and the encoded plain fields of a node."""


class WireNode(msgspec.Struct, frozen=True, array_like=True):
    """A node in the wire form; `inputs` are positions in the list of nodes, all before its own."""

    kind: str
    inputs: list[int]
    fields: msgspec.Raw
    pickled: dict[str, bytes]
    site: str


def decode_wire_nodes(data: bytes) -> list[WireNode]:
    """Decode the nodes of a tree, with fields and blobs as bytes; kinds may be unknown here.

    Raises:
        InvalidArgumentError: if the bytes are not a tree.
    """
    try:
        wire_nodes = msgspec.msgpack.decode(data, type=list[WireNode])
    except msgspec.MsgspecError as error:
        raise InvalidArgumentError(f"these bytes are not a dataset: {error}") from error
    if not wire_nodes:
        raise InvalidArgumentError("these bytes are not a dataset: it has no nodes")
    # Peers may send any bytes; a cycle of inputs would never end.
    for position, wire in enumerate(wire_nodes):
        if any(not 0 <= child < position for child in wire.inputs):
            raise InvalidArgumentError(
                f"these bytes are not a dataset: node {position} ({wire.kind}) reads {wire.inputs}"
            )
    return wire_nodes


def structure_of(tree: bytes | Node) -> bytes:
    """Encode the parts of a tree that the clients of a job must agree on.

    These are kinds, inputs and plain fields, neither functions, sites nor drawn seeds. Kinds of a
    wire form may be unknown here.

    Args:
        tree: nodes, or their wire form.

    Raises:
        InvalidArgumentError: if the bytes are not a tree.
    """
    if isinstance(tree, Node):
        return msgspec.msgpack.encode(parts_of(tree))
    # Functions, sites and drawn seeds may differ between the clients of a job.
    parts: list[Part] = [(wire.kind, wire.inputs, wire.fields) for wire in decode_wire_nodes(tree)]
    return msgspec.msgpack.encode(parts)


def parts_of(root: Node, *, tuning: bool = True) -> list[Part]:
    """Return what `structure_of` encodes, by the number of the node.

    Args:
        root: the tree.
        tuning: include the fields that only affect speed.
    """
    numbers = number(root)
    return [
        (node.kind, [numbers[child] for child in node.inputs], plain_fields(node, tuning))
        for node in numbers
    ]


def decode_parts(structure: bytes) -> list[Part]:
    """Return the parts that `structure_of` encoded.

    Raises:
        InvalidArgumentError: if the bytes are not a structure.
    """
    try:
        return msgspec.msgpack.decode(structure, type=list[Part])
    except msgspec.MsgspecError as error:
        raise InvalidArgumentError(f"these bytes are not a structure: {error}") from error


def kinds_of(structure: bytes) -> list[str]:
    """Return the kinds of the nodes of a structure.

    Raises:
        InvalidArgumentError: if the bytes are not a structure.
    """
    return [kind for kind, _, _ in decode_parts(structure)]


def first_difference(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the first index at which two lists of parts differ; maybe the end of a list."""
    # The end of the shorter list is a difference, too.
    pairs = zip_longest(first, second)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), len(first))


def plain_fields(node: Node, tuning: bool = True) -> msgspec.Raw:
    """Return the encoded fields that are neither inputs nor pickled.

    Raises:
        InvalidArgumentError: if a part is text that is neither Unicode nor a file name.
    """
    fields = {
        name: getattr(node, name)
        for name in layout_of(type(node)).plain
        if tuning or name not in node.tuning
    }
    try:
        return msgspec.Raw(encode_fields(fields))
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"an argument of `{node.kind}` ({node.site}) cannot be encoded as UTF-8: {error}"
        ) from error


def source_summary(root: Node) -> list[Source]:
    """Return the sources that can be assigned in splits, in the order of their numbers."""
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
