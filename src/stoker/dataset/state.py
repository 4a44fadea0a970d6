"""State of an iterator as small JSON, to resume its epoch elsewhere."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from stoker.dataset.tree.local_form import LocalForm, nodes_above_epoch
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
        consumers: number of processes that divide the epoch, each with a position of its own, in a
            deterministic epoch of a service; ``None`` without one.
        base: the position in the whole epoch, in elements of this tree, at which they began. The
            consumers are at ``base + position * consumers`` there. ``None`` if there is no such
            position, because of the nodes above the service.
    """

    version: int = VERSION
    structure: str
    nodes: str
    seed: int
    salts: list[int]
    epoch: int
    position: int
    consumers: int | None = None
    base: int | None = 0

    def as_dict(self, position: int) -> dict[str, Any]:
        """Return the fields at a position, for JSON; without a service only the first seven."""
        fields = msgspec.structs.asdict(self) | {"position": position}
        if self.consumers is None:
            del fields["consumers"], fields["base"]
        return fields


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
    if state.position < 0 or state.epoch < 0 or (state.base or 0) < 0:
        raise InvalidArgumentError(f"`state` has a negative position, base or epoch: {value!r}")
    consumers = 1 if state.consumers is None else state.consumers
    if consumers < 1 or (consumers == 1 and state.base is None):
        raise InvalidArgumentError(
            f"`state` has {state.consumers} consumers and base {state.base}, which no reader has; "
            f"got {value!r}"
        )
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


def consumers_of(root: Node, local: LocalForm, base: int) -> tuple[int | None, int | None]:
    """Return `consumers` and `base` of a state.

    Args:
        root: the tree.
        local: its local form.
        base: of the consumers.
    """
    if not local.epochs:
        return None, base
    counted = local.consumers == 1 or _preventing(root, local) is None
    return local.consumers, base if counted else None


def _preventing(root: Node, local: LocalForm) -> Node | None:
    """Return the node by which positions of a consumer are none of the whole epoch, if any."""
    node = nodes_above_epoch(root)[1]
    return None if node in local.epochs else node


def start_of(state: IteratorState, root: Node, local: LocalForm) -> tuple[int, int]:
    """Return the position and the base at which a reader of a tree goes on from a state.

    Args:
        state: of a reader of the tree, with any number of consumers, or of none.
        root: the tree.
        local: its local form.

    Raises:
        UnimplementedError: if the number of consumers differs, and positions of a consumer are none
            of the whole epoch; names the node.
        InvalidArgumentError: if the state is after the end of the epoch.
    """
    before, now = state.consumers or 1, local.consumers
    preventing = _preventing(root, local) if now > 1 else None
    is_same = before == now > 1
    if is_same and preventing is not None and state.base is None:
        return state.position, 0
    if preventing is not None or state.base is None:
        raise UnimplementedError(_no_position(state, now, preventing))
    position = state.base + state.position * before
    count, group = root.cardinality(), 1
    if now > 1:
        above, source = nodes_above_epoch(root)
        count = local.epochs[source].length
        group = math.prod(node.inputs_per_element() or 1 for node in above)
    if now == 1 and (before == 1 or count < 0):
        return position, 0
    # The last step may be short: then only the first consumers have an element of it.
    last = state.base + (state.position - 1) * before if state.position else state.base - 1
    if last * group >= count:
        raise InvalidArgumentError(
            f"`state` is at position {state.position} of {before} consumers from {state.base} on, "
            f"but the epoch has {count} elements; the source has changed since"
        )
    if is_same:
        return state.position, state.base
    position = min(position, -(-count // group))
    return (position, 0) if now == 1 else (0, position)


def _no_position(state: IteratorState, consumers: int, node: Node | None) -> str:
    text = f"`state` is of {state.consumers or 1} consumers, and this dataset of {consumers}: "
    where = "a node above `distribute`" if node is None else f"`{node.kind}` ({node.site})"
    return (
        f"{text}where a consumer goes on does not follow from its position through {where}. Apply "
        "it before `distribute`, or resume with the same `num_consumers` and the same pipeline"
    )


def bases_of(root: Node, local: LocalForm, base: int) -> dict[int, int]:
    """Return `Context.bases` of a tree whose consumers begin at `base`."""
    if not base:
        return {}
    above, source = nodes_above_epoch(root)
    bases = {}
    for node in (*above, source):
        bases[local.numbers[node]] = base
        base *= node.inputs_per_element() or 1
    return bases


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
    own = f"`{node.kind}` ({node.site})" if node.site else f"`{node.kind}`"
    if not kind:
        return f"{own} is not in the state"
    if kind == node.kind:
        return f"{own} has other arguments in the state"
    return f"the state has `{kind}` in place of {own}"
