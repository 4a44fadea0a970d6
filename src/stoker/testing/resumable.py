"""`assert_resumable`: an epoch that is interrupted anywhere yields what it yields as a whole."""

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.state import check_resumable
from stoker.dataset.stateful.functions import stateful_functions
from stoker.dataset.tree.node import Node, layout_of, number
from stoker.dataset.tree.walk import functions_of
from stoker.errors import InvalidTypeError, UnimplementedError
from stoker.testing.outcomes import END, Outcome, difference, is_error
from stoker.testing.reader import Reading, Resumption
from stoker.testing.reader_process import ReaderProcess

_HASH_SEEDS = (1, 2)
"""Seeds of the two processes, from which the order of sets of text follows."""

_INPUTS = 20_000
_INPUT_SECONDS = 5.0
"""Limits of reading the parts of a dataset, to find the first node that differs."""

_MORE = 100
"""Elements after the first difference that are read for its cause: some may agree by chance."""


def assert_resumable(
    dataset: Dataset, *, epoch: int = 0, max_elements: int = 1_000, max_positions: int = 100
) -> None:
    """Check that an epoch yields the same wherever it is interrupted and resumed.

    A child process reads the epoch twice from its beginning. Another one, in which sets of text
    have another order, resumes the epoch from the states of the first, each time with a new copy
    of the functions. Values, dtypes, structure and errors are compared. What a deterministic epoch
    of a service needs is the same.

    Functions are pickled as for the workers of a service; no ``__main__`` guard is needed.

    Args:
        dataset: the pipeline, not distributed.
        epoch: number of the epoch.
        max_elements: elements that are read of a long epoch.
        max_positions: positions at which the epoch is interrupted: all of a short epoch; otherwise
            the first, the last and others between, the same in each run.

    Raises:
        AssertionError: if elements differ; names the first node whose elements do, with its line,
            the position, both values, and what to write instead.
        InvalidTypeError: if `dataset` is not a stoker Dataset.
        InvalidArgumentError: if a number is out of range, or a function cannot be pickled.

    Example:
        >>> from stoker.testing import assert_resumable
        >>> assert_resumable(Dataset.range(9).shuffle(9).map(lambda x: x * x).batch(2))
    """
    if not isinstance(dataset, Dataset):
        raise InvalidTypeError(f"`dataset` must be a stoker.Dataset; got {dataset!r}")
    epoch = arguments.integer("epoch", epoch, minimum=0)
    most = arguments.size("max_elements", max_elements)
    positions = arguments.size("max_positions", max_positions)
    try:
        check_resumable(dataset.node)
    except UnimplementedError as error:
        raise AssertionError(f"the dataset is not resumable: {error}") from error
    blob = _pickled(dataset)
    first_seed, second_seed = _HASH_SEEDS
    with ReaderProcess(blob, first_seed) as first, ReaderProcess(blob, second_seed) as second:
        check = _Check(first, second, epoch, positions)
        *inputs, root = number(dataset.node).items()
        outcomes = check.whole(root[1], most)
        found = check.difference(*root, outcomes)
        if found is None:
            _check_has_elements(outcomes)
            return
        for node, index in inputs:
            outcomes = check.whole(index, max(most, _INPUTS), _INPUT_SECONDS)
            if (earlier := check.difference(node, index, outcomes)) is not None:
                found = earlier
                break
    raise AssertionError(_message(found, epoch, _differs_by_process(blob, found, epoch)))


def _check_has_elements(outcomes: list[Outcome]) -> None:
    if END not in outcomes[:1] and all(is_error(each) or each == END for each in outcomes):
        raise AssertionError(f"no element of the dataset can be read: {outcomes[0][''].text}")


class _Difference(NamedTuple):
    """The first outcomes of a node that differ.

    Attributes:
        node: the node.
        number: its number.
        resumed_at: the position of the state; ``None``: it was read once more.
        position: of the outcomes in the epoch.
        expected: text of what the whole epoch has.
        found: text of what was read there.
    """

    node: Node
    number: int
    resumed_at: int | None
    position: int
    expected: str
    found: str


class _Check(NamedTuple):
    """Comparison of the epochs of nodes in two processes."""

    first: ReaderProcess
    second: ReaderProcess
    epoch: int
    max_positions: int

    def whole(self, index: int, most: int, seconds: float | None = None) -> list[Outcome]:
        """Read the epoch of the node with number `index` from its beginning."""
        reading: Reading = self.first.call("read", index, self.epoch, most, seconds)
        return reading.outcomes

    def difference(self, node: Node, index: int, whole: list[Outcome]) -> _Difference | None:
        """Return the first difference of a node from `whole`; ``None`` if there is none."""
        count = len(whole)
        positions = _positions(count, self.max_positions)
        again: Reading = self.first.call(
            "read", index, self.epoch, count, positions=positions, again=True
        )
        if differs := _first_difference(whole, again.outcomes):
            return _Difference(node, index, None, *differs)
        pieces = [
            Resumption(state, stop - start)
            for state, (start, stop) in zip(
                again.states, itertools.pairwise((*positions, count)), strict=True
            )
        ]
        # From the last to the first: what a process remembers of an earlier piece is not what an
        # epoch without interruption would have.
        found = self.second.call("resume", index, pieces[::-1])[::-1]
        for start, piece, outcomes in zip(positions, pieces, found, strict=True):
            expected = whole[start : start + piece.length]
            if differs := _first_difference(expected, outcomes, start):
                return _Difference(node, index, start, *differs)
        return None


def _differs_by_process(blob: bytes, found: _Difference, epoch: int) -> bool:
    """Return whether the node also differs in new processes, which remember no earlier calls."""
    reading = found.number, epoch, found.position + _MORE
    first_seed, second_seed = _HASH_SEEDS
    with ReaderProcess(blob, first_seed) as first, ReaderProcess(blob, second_seed) as second:
        one, other = (process.call("read", *reading).outcomes for process in (first, second))
    return _first_difference(one, other) is not None


def _pickled(dataset: Dataset) -> bytes:
    for _, pickled in functions_of(dataset.node):
        _ = pickled.blob  # its error names the variable
    return Pickled.of(dataset).blob


def _positions(count: int, most: int) -> list[int]:
    """Return where to interrupt an epoch of `count` outcomes, in order."""
    if count <= most:
        return list(range(count))
    ends = [0, count - 1][:most]
    # The same in each run, so that a failed test can be repeated.
    between = random.Random(0).sample(range(1, count - 1), most - len(ends))
    return sorted([*ends, *between])


def _first_difference(
    expected: Sequence[Outcome], found: Sequence[Outcome], start: int = 0
) -> tuple[int, str, str] | None:
    """Return the position and the texts of the first outcomes that differ."""
    missing: Outcome = {}
    pairs = itertools.zip_longest(expected, found, fillvalue=missing)
    for position, pair in enumerate(pairs, start):
        if texts := difference(*pair):
            return position, *texts
    return None


def _message(found: _Difference, epoch: int, by_process: bool) -> str:
    node, resumed_at = found.node, found.resumed_at
    how = "once more" if resumed_at is None else f"resumed at {resumed_at} in another process"
    return (
        f"the dataset is not resumable: element {found.position} of `{node.kind}` ({node.site}) "
        f"in epoch {epoch} differs\n"
        f"  from the beginning: {found.expected}\n"
        f"  {how}: {found.found}\n"
        f"{_advice(node, by_process)}"
    )


def _advice(node: Node, by_process: bool) -> str:
    for stateful in stateful_functions(node):
        if stateful.node is node:
            return (
                f"{stateful}; count with enumerate(), keep what depends on earlier elements in "
                "scan(), and draw from stoker.random.generator()"
            )
    if not layout_of(type(node)).pickled:
        return "its data changed between the readings; read files that nobody writes"
    if by_process:
        return (
            "its function must depend on its arguments alone: draw from "
            "stoker.random.generator(), not from random or numpy.random; sort sets; use no time, "
            "process id or hash()"
        )
    return (
        "its function must not depend on earlier calls: count with enumerate(), and keep what "
        "depends on earlier elements in scan()"
    )
