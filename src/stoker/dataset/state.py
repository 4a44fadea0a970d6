"""State of an iterator as small JSON, to resume its epoch elsewhere."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.structure import structure_of
from stoker.errors import InvalidArgumentError, UnimplementedError

VERSION = 1


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in one epoch of a dataset.

    Attributes:
        version: version of this format.
        structure: digest of the kinds, inputs and fields of the tree, without functions and fields
            that only affect speed.
        seed: replaces the seeds that the user did not give.
        epoch: number of the epoch.
        position: number of elements and errors the reader has received.
    """

    version: int = VERSION
    structure: str
    seed: int
    epoch: int
    position: int

    def to_dict(self) -> dict[str, Any]:
        """Return the state as builtin values that JSON can represent."""
        return msgspec.structs.asdict(self)


def digest_of(root: Node) -> str:
    """Return a digest of the structure of a tree; functions are not part of it."""
    import hashlib  # OpenSSL costs milliseconds at `import stoker`

    structure = structure_of(root, tuning=False)
    return hashlib.blake2s(structure, digest_size=16).hexdigest()


def check_resumable(root: Node) -> None:
    """Check that every node can repeat an epoch.

    Raises:
        UnimplementedError: if a node cannot; the message names it.
    """
    for node in number(root):
        if node.unrepeatable:
            raise UnimplementedError(
                f"`{node.kind}` ({node.site}) has no state: {node.unrepeatable}"
            )


def parse_state(value: Any, root: Node, seed: int | None) -> State:
    """Parse a state and check that it belongs to a dataset.

    Args:
        value: the result of `to_dict`, perhaps after JSON.
        root: the tree of the dataset.
        seed: the seed of the dataset's options; ``None``: any.

    Raises:
        InvalidArgumentError: if it is not a state, or belongs to another dataset or seed.
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
        state = msgspec.convert(value, State)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"`state` must be what Iterator.state_dict() returned: {error}; got {value!r}"
        ) from error
    if state.position < 0 or state.epoch < 0:
        raise InvalidArgumentError(f"`state` has a negative position or epoch: {value!r}")
    if state.structure != digest_of(root):
        raise InvalidArgumentError(
            "`state` belongs to another dataset: the nodes or their arguments differ from those "
            "of its dataset; build the same pipeline, or start without a state"
        )
    if seed is not None and state.seed != seed:
        raise InvalidArgumentError(
            f"`state` belongs to an epoch with seed {state.seed}, but Options(seed={seed}) is set; "
            "give the same seed, or none"
        )
    return state
