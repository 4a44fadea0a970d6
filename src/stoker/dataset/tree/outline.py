"""A tree as lines of text, made from its wire form: no function of a user is unpickled."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stoker.dataset.tree.structure import WireNode, decode_wire_nodes
from stoker.dataset.tree.walk import inputs_first

LONGEST_FIELDS = 1 << 12
"""Most bytes of the fields of a node that are decoded; arrays have more."""

LONGEST_VALUE = 60
"""Most characters of the value of a field."""


def outline(tree: bytes) -> list[str]:
    """Return a line for each node of a tree in wire form, each after its inputs.

    The inputs of a node that has several are indented.

    Raises:
        InvalidArgumentError: if the bytes are not a tree.
    """
    return list(_lines(decode_wire_nodes(tree)))


def _lines(nodes: list[WireNode]) -> Iterator[str]:
    def inputs_of(position: int) -> list[tuple[int, int]]:
        inputs = nodes[position].inputs
        return [(each, int(len(inputs) > 1)) for each in inputs]

    for position, depth, again in inputs_first(len(nodes) - 1, inputs_of):
        node = nodes[position]
        text = f"{node.kind}, as above"
        if not again:
            text = call_text(node.kind, node.fields, node.pickled)
        site = f"  at {node.site}" if node.site else ""
        yield "  " * depth + text + site


def call_text(kind: str, fields: msgspec.Raw, pickled: Iterable[str] = ()) -> str:
    """Return a node as a call, with the values of its short fields.

    Args:
        kind: of the node.
        fields: encoded, as in the wire form.
        pickled: the names of its functions.
    """
    shown = [f"{name}={value!r}" for name, value in _decoded(fields).items() if _is_short(value)]
    return f"{kind}({', '.join([*pickled, *shown])})"


def _decoded(fields: msgspec.Raw) -> dict[str, Any]:
    """Return the fields of a node, unless the fields are long or of an unknown kind."""
    if len(bytes(fields)) > LONGEST_FIELDS:
        return {}
    try:
        # The bytes come from a peer, and may be anything.
        return msgspec.msgpack.decode(fields, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) and len(repr(value)) <= LONGEST_VALUE
