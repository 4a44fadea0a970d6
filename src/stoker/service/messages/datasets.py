"""Calls that register and fetch datasets."""

from typing import Any

import msgspec

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.options import Options
from stoker.dataset.positions.counted import Positions
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.dataset.tree.splits import Source
from stoker.service.messages.session import Message
from stoker.service.messages.tasks import Versions


class Function(msgspec.Struct, frozen=True):
    """A user function of a dataset: the line that uses it, and the digest of its code."""

    site: str
    digest: str


# The tree is asked for by its digest first: ranks of a job have the same one, of megabytes.
class RegisterDataset(Message, frozen=True, tag=True):
    """Register a dataset. Without `tree`: ask whether the digest is registered.

    `structure` and `functions` describe the tree to a job that exists, which does not need it.
    `file_sources` are the sources with the splits that shards of their files have. `seeds` are no
    part of the digest: identical datasets with other seeds are one, with those of the first.
    `positions`: whether the positions of its elements are known; ``None`` from a client that does
    not know deterministic epochs.
    """

    digest: str
    tree: bytes = b""
    spec: Any = None
    options: Options = Options()
    sources: list[Source] = []
    runs_python: bool = False
    versions: Versions = Versions("", "")
    compression: str | None = "AUTO"
    dataset_id: str = ""
    size: int = UNKNOWN_CARDINALITY
    structure: bytes = b""
    functions: list[Function] = []
    file_sources: list[Source] = []
    seeds: DrawnSeeds = DrawnSeeds()
    positions: Positions | None = None


class DatasetRegistered(Message, frozen=True, tag=True):
    """The id of the registered dataset; empty if the tree is needed."""

    dataset_id: str


class GetDataset(Message, frozen=True, tag=True):
    """Get a dataset; clients of `from_dataset_id` do not need its tree."""

    dataset_id: str
    with_tree: bool = True


class DatasetReply(Message, frozen=True, tag=True):
    """A registered dataset; `spec` is its element_spec in wire form, `size` its cardinality.

    `structure`, `positions` and `seeds` as in `RegisterDataset`.
    """

    tree: bytes
    spec: Any
    options: Options
    size: int
    compression: str | None
    structure: bytes = b""
    positions: Positions | None = None
    seeds: DrawnSeeds = DrawnSeeds()
