"""Fingerprint of a pipeline, stored in caches and snapshots to detect stale ones."""

import msgspec

from stoker.dataset.state import identity_of
from stoker.dataset.tree.node import Context, Node, number


def uses_seed(root: Node) -> bool:
    """Return whether a node of a tree draws by the seed of the dataset."""
    return any(
        getattr(node, "seed", 0) is None and getattr(node, "shuffle", True) for node in number(root)
    )


class Fingerprint(msgspec.Struct, frozen=True):
    """The part of a pipeline that a later process can compare.

    It covers the nodes, their arguments, files and given seeds, but not functions, whose
    pickled bytes differ between processes, nor arrays in memory, which are expensive to digest,
    nor arguments that only set how fast the pipeline runs.

    Attributes:
        structure: a digest of the tree.
        uses_seed: whether a node takes its seed from `Options.seed`.
    """

    structure: str
    uses_seed: bool

    @classmethod
    def of(cls, root: Node) -> "Fingerprint":
        """Return the fingerprint of a tree."""
        return cls(identity_of(root).structure, uses_seed(root))

    def metadata(self, context: Context) -> dict[str, str]:
        """Return the metadata of a store; seeds that were not given count as equal."""
        seed = str(context.seed) if self.uses_seed and context.seed_given else ""
        return {"structure": self.structure, "seed": seed}
