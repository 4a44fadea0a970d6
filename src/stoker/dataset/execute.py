"""Opens trees as streams, and says where a failure came from."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.dataset.node import Node, number
from stoker.dataset.rewrite import rewrite
from stoker.dataset.stream import Stream


class Statistics:
    """Counts and amounts by name, of a whole pass; any stream of it adds, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._amounts: list[tuple[str, Callable[[], int]]] = []

    def add(self, name: str, count: int) -> None:
        """Adds to a count; the first time, from 0."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count

    def watch(self, name: str, amount: Callable[[], int]) -> None:
        """Has `amount` called whenever somebody looks: what goes up and down, such as bytes held.

        Where several streams watch under one name, they are added up.
        """
        with self._lock:
            self._amounts.append((name, amount))

    def counts(self) -> dict[str, int]:
        """What was counted so far."""
        with self._lock:
            return dict(self._counts)

    def snapshot(self) -> dict[str, int]:
        """What was counted so far, and the amounts now."""
        with self._lock:
            amounts = list(self._amounts)
        found = self.counts()
        for name, amount in amounts:  # not under the lock: they take others
            found[name] = found.get(name, 0) + amount()
        return found


class SplitReader(Protocol):
    """Hands a source the splits it shall read."""

    def open(self, source: int) -> Iterator[Any]:
        """The splits of the source with this node number; the n-th call is its n-th pass.

        Yields ``(start, stop)`` for `IndexSplits`, the listed values for `ListedSplits`. May block.
        """
        ...


Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What a pass depends on besides the tree.

    Attributes:
        seed: for the seeds the user did not give.
        seed_given: the user gave it (`Options.seed`); otherwise it was drawn.
        epoch: the pass, then one number for each enclosing repeat or flat_map opening.
        explicit_epoch: the caller named the pass.
        numbers: the number of every node of the tree.
        splits: where sources get what to read; ``None``: they read everything.
        allocate: makes the arrays of batches that leave the pipeline; see `allocate_for`.
        outgoing: the nodes that make them.
        threads: the most pool threads one stream may use; ``None``: no limit of its own.
        autotune_bytes: the most one step with AUTOTUNE may hold; ``None``: by the cores.
        statistics: where streams count what the reader may ask for.
    """

    seed: int = 0
    seed_given: bool = False
    epoch: tuple[int, ...] = (0,)
    explicit_epoch: bool = False
    numbers: Mapping[Node, int] = dataclasses.field(default_factory=dict)
    splits: SplitReader | None = None
    allocate: Allocate = np.empty
    outgoing: frozenset[Node] = frozenset()
    threads: int | None = None
    autotune_bytes: int | None = None
    statistics: Statistics = dataclasses.field(default_factory=Statistics)

    def allocate_for(self, node: Node) -> Allocate:
        """What makes the arrays of the batches of `node`.

        Whoever gave `allocate` may hand the memory to another process that writes to it. So only
        batches nobody here can see afterwards are made there: behind them are only nodes that pass
        elements on. All others are made in ordinary memory.
        """
        return self.allocate if node in self.outgoing else np.empty

    def inner(self, k: int) -> "Context":
        """For the k-th opening of the same tree below this node."""
        return dataclasses.replace(self, epoch=(*self.epoch, k))

    def nested(self, root: Node, k: int) -> "Context":
        """For a dataset built inside a function: its own numbers, and it reads everything."""
        return dataclasses.replace(
            self, epoch=(*self.epoch, k), numbers=number(root), splits=None, allocate=np.empty
        )


def open_stream(root: Node, context: Context) -> Stream:
    """Rewrites the tree and opens it for one pass.

    Args:
        root: the tree.
        context: of the pass; where it does not number the tree, the tree's own numbers are used.
    """
    numbers = context.numbers if root in context.numbers else number(root)
    tree, numbers = rewrite(root, numbers)
    return tree.open(dataclasses.replace(context, numbers=numbers, outgoing=_makers(tree)))


def _makers(root: Node) -> frozenset[Node]:
    """The nodes that make what the tree yields; all above them pass elements on."""
    makers = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.passes_on:
            stack.extend(node.inputs)
        else:
            makers.add(node)
    return frozenset(makers)


class Origin(NamedTuple):
    """Where a user's function raised: the node, the line that built it, the element's number."""

    kind: str
    site: str
    index: int | None  # type: ignore[assignment]  # nobody searches an Origin by tuple.index


_ORIGIN = "__stoker_origin__"


def mark_failure(error: Exception, origin: Origin) -> Exception:
    """Notes on `error` where it was raised; returns what to raise.

    A user's StopIteration becomes a RuntimeError, as in a generator: it would end the stream.
    The innermost mark stays.
    """
    if isinstance(error, StopIteration):
        cause = error
        error = RuntimeError(f"the function of `{origin.kind}` raised StopIteration")
        error.__cause__ = cause
    if failure_origin(error) is None:
        where = f" ({origin.site})" if origin.site else ""
        what = "" if origin.index is None else f", at element {origin.index}"
        error.add_note(f"raised in `{origin.kind}`{where}{what}")
        with suppress(AttributeError, TypeError):  # a class may refuse attributes
            setattr(error, _ORIGIN, origin)
    return error


def raise_failure(error: Exception, origin: Origin) -> NoReturn:
    """Raises `error` as marked by `mark_failure`."""
    raise mark_failure(error, origin)


def failure_origin(error: BaseException) -> Origin | None:
    """Where `error` was raised, if a user's function raised it."""
    origin = getattr(error, _ORIGIN, None)
    return origin if isinstance(origin, Origin) else None
