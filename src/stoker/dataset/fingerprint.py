"""Whose elements a file keeps: what of a pipeline must be the same for them to be read again."""

import msgspec

from stoker.dataset.state import digest_of
from stoker.dataset.tree.node import Context, Node, number
from stoker.errors import FailedPreconditionError


class Identity(msgspec.Struct, frozen=True):
    """A pipeline, as far as it can be told from another in a later process.

    Its nodes, their arguments, files and seeds are in it. Functions are not: the bytes they are
    pickled to differ from one process to the next. Nor are arrays in memory, for what that costs,
    nor what only says how fast it runs.

    Attributes:
        structure: a digest of the tree.
        draws: a node takes its seed from `Options.seed`.
    """

    structure: str
    draws: bool

    @classmethod
    def of(cls, root: Node) -> "Identity":
        """The identity of a tree."""
        draws = any(
            getattr(node, "seed", 0) is None and getattr(node, "shuffle", True)
            for node in number(root)
        )
        return cls(digest_of(root), draws)

    def about(self, context: Context) -> dict[str, str]:
        """What to write into a file; a seed that nobody gave is as good as any other."""
        seed = str(context.seed) if self.draws and context.seed_given else ""
        return {"structure": self.structure, "seed": seed}


def check_same(found: dict[str, str], wanted: dict[str, str], path: str) -> None:
    """Checks that a file keeps what this pipeline would compute.

    Raises:
        FailedPreconditionError: it is another pipeline's.
    """
    differing = [name for name, value in wanted.items() if found.get(name) != value]
    if differing:
        what = " and ".join(differing)
        raise FailedPreconditionError(
            f"{path} was written by another pipeline: its {what} differs; delete the file or name "
            f"another (found {found}, expected {wanted})"
        )
