"""State of an iterator as small JSON, to resume its epoch elsewhere."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.structure import first_difference, parts_of
from stoker.errors import InvalidArgumentError, UnimplementedError

VERSION = 2

NAMED_NODES = 32
"""Most nodes that a state lists, to name a node that differs."""


# A state is a position: resuming opens the same epoch and calls `advance`, so no node has a state
# to save. (docs/decisions/082)
class IteratorState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in an epoch of a dataset.

    Attributes:
        version: version of this format.
        structure: digest of the kinds, inputs and fields of the tree, without functions, drawn
            seeds and fields that only affect speed.
        nodes: the kinds of the first nodes, each with a short digest.
        seed: replaces the seeds that the user did not give.
        salts: of the random nodes, as `salts_of` returns.
        epoch: number of the epoch.
        position: number of elements and errors the reader has received.
    """

    version: int = VERSION
    structure: str
    nodes: str
    seed: int
    salts: list[int]
    epoch: int
    position: int


class Identity(NamedTuple):
    """The fields of a state that identify the tree."""

    structure: str
    nodes: str


def identity_of(root: Node) -> Identity:
    """Return the identity of a tree, without functions and drawn seeds."""
    parts = parts_of(root, tuning=False)
    nodes = [f"{part[0]}:{_digest(part, 2)}" for part in parts[:NAMED_NODES]]
    return Identity(_digest(parts, 16), " ".join(nodes))


def _digest(value: Any, size: int) -> str:
    import hashlib  # OpenSSL costs milliseconds at `import stoker`

    return hashlib.blake2s(msgspec.msgpack.encode(value), digest_size=size).hexdigest()


def check_resumable(root: Node) -> None:
    """Check that every node can repeat an epoch.

    Raises:
        UnimplementedError: if a node cannot; the message names the node.
    """
    for node in number(root):
        if node.unrepeatable:
            raise UnimplementedError(
                f"`{node.kind}` ({node.site}) has no state: {node.unrepeatable}"
            )


def parse_state(value: Any, root: Node, identity: Identity, seed: int | None) -> IteratorState:
    """Parse a state and check that it belongs to a dataset.

    Args:
        value: the fields of an `IteratorState` as a dict, perhaps after JSON.
        root: the tree of the dataset.
        identity: of the tree.
        seed: the seed of the dataset's options; ``None``: any.

    Raises:
        InvalidArgumentError: if the value is not a state, or belongs to another dataset or seed.
        UnimplementedError: if the tree cannot be resumed.
    """
    check_resumable(root)
    version = value.get("version") if isinstance(value, Mapping) else None
    if version is not None and version != VERSION:
        raise InvalidArgumentError(
            f"`state` is of version {version!r}; this stoker reads version {VERSION}: resume with "
            "the stoker that wrote it, or start without a state"
        )
    try:
        state = msgspec.convert(value, IteratorState)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"`state` must be what Iterator.state_dict() returned: {error}; got {value!r}"
        ) from error
    if state.position < 0 or state.epoch < 0:
        raise InvalidArgumentError(f"`state` has a negative position or epoch: {value!r}")
    if state.structure != identity.structure:
        difference = _difference(root, identity.nodes, state.nodes)
        raise InvalidArgumentError(
            f"`state` belongs to another dataset: {difference}; build the same pipeline, or start "
            "without a state"
        )
    if seed is not None and state.seed != seed:
        raise InvalidArgumentError(
            f"`state` belongs to an epoch with seed {state.seed}, but Options(seed={seed}) is set; "
            "give the same seed, or none"
        )
    return state


def _difference(root: Node, ours: str, theirs: str) -> str:
    """Return what differs first between a tree and that of a state, as part of a sentence."""
    mine, others = ours.split(), theirs.split()
    index = first_difference(mine, others)
    if index == NAMED_NODES:
        return f"a node after the first {NAMED_NODES} differs"
    kind = others[index].partition(":")[0] if index < len(others) else ""
    if index == len(mine):
        return f"the state has a `{kind}` after the last node" if kind else "a node differs"
    node = list(number(root))[index]
    own = f"`{node.kind}` ({node.site})"
    if not kind:
        return f"{own} is not in the state"
    if kind == node.kind:
        return f"{own} has other arguments in the state"
    return f"the state has `{kind}` in place of {own}"
