"""Where an iterator stands, as small JSON: what it takes to go on elsewhere."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.structure import structure_of
from stoker.errors import InvalidArgumentError, UnimplementedError

VERSION = 1


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in one pass over a dataset.

    Attributes:
        version: of this form.
        structure: digest of the tree: its kinds, inputs and fields, but neither functions nor what
            only says how fast it runs.
        seed: for the seeds the user did not give.
        epoch: the pass.
        position: how many elements and errors the reader has received.
    """

    version: int = VERSION
    structure: str
    seed: int
    epoch: int
    position: int

    def to_dict(self) -> dict[str, Any]:
        """As builtin values that JSON can hold."""
        return msgspec.structs.asdict(self)


def digest_of(root: Node) -> str:
    """A digest of what a tree computes, as far as it can be told without running its functions."""
    import hashlib  # OpenSSL costs milliseconds at `import stoker`

    structure = structure_of(root, tuning=False)
    return hashlib.blake2s(structure, digest_size=16).hexdigest()


def check_resumable(root: Node) -> None:
    """Checks that every node yields the same again.

    Raises:
        UnimplementedError: one cannot; names it.
    """
    for node in number(root):
        if node.unrepeatable:
            raise UnimplementedError(
                f"`{node.kind}` ({node.site}) has no state: {node.unrepeatable}"
            )


def parse_state(value: Any, root: Node, seed: int | None) -> State:
    """A state that continues `root`.

    Args:
        value: what `to_dict` gave, perhaps by way of JSON.
        root: the dataset's tree.
        seed: what the dataset's options demand; ``None``: whatever the state's is.

    Raises:
        InvalidArgumentError: it is none, or of another dataset or seed.
        UnimplementedError: the tree has no state.
    """
    check_resumable(root)
    version = value.get("version") if isinstance(value, Mapping) else None
    if version is not None and version != VERSION:
        raise InvalidArgumentError(
            f"`state` is of version {version!r}; this stoker reads version {VERSION}: resume with "
            "the stoker that wrote it, or begin anew"
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
            "it was taken of; build the same pipeline, or begin anew without a state"
        )
    if seed is not None and state.seed != seed:
        raise InvalidArgumentError(
            f"`state` is of a pass with seed {state.seed}, but Options(seed={seed}) is set; give "
            "the same seed, or none"
        )
    return state
