"""Reader of a dataset and of its parts, in a child process."""

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import Iterator
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import number
from stoker.dataset.tree.walk import functions_of
from stoker.testing.outcomes import END, Outcome, outcome_of, outcome_of_error


class Reading(NamedTuple):
    """A part of an epoch.

    Attributes:
        outcomes: of its reads; the last may be `END`.
        states: of the iterator, at the positions that were asked for.
    """

    outcomes: list[Outcome]
    states: list[dict[str, Any]]


class Resumption(NamedTuple):
    """A state, and the number of outcomes that are read from there."""

    state: dict[str, Any]
    length: int


class Reader:
    """Reads a dataset, and the datasets of which its nodes are the last.

    Args:
        blob: the dataset as a `Pickled`.
    """

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._dataset: Dataset | None = None

    def read(
        self,
        node: int,
        epoch: int,
        most: int,
        seconds: float | None = None,
        positions: Sequence[int] = (),
        *,
        again: bool = False,
    ) -> Reading:
        """Read an epoch from its beginning.

        Args:
            node: number of the last node.
            epoch: number of the epoch.
            most: outcomes that are read.
            seconds: the time after which no further one is read; ``None``: unlimited.
            positions: where to take states.
            again: read the dataset that was read before, not a new copy.
        """
        dataset = self._last_until(node) if again else self._copy_until(node)
        end = None if seconds is None else time.monotonic() + seconds
        reading = Reading([], [])
        with dataset.iterator(epoch=epoch) as iterator:
            for position in range(most):
                if position in positions:
                    reading.states.append(json.loads(json.dumps(iterator.state_dict())))
                reading.outcomes.append(_next_outcome(iterator))
                if reading.outcomes[-1] == END or (end is not None and time.monotonic() > end):
                    break
        return reading

    def resume(self, node: int, resumptions: Sequence[Resumption]) -> list[list[Outcome]]:
        """Read from each of the states, each time with a new copy of the dataset."""
        return [self._resume(node, each) for each in resumptions]

    def _resume(self, node: int, resumption: Resumption) -> list[Outcome]:
        try:
            iterator = self._copy_until(node).iterator(state=resumption.state)
        except Exception as error:  # noqa: BLE001 - of a source that has changed
            return [outcome_of_error(error)]
        outcomes: list[Outcome] = []
        with iterator:
            while len(outcomes) < resumption.length and END not in outcomes[-1:]:
                outcomes.append(_next_outcome(iterator))
        return outcomes

    def _copy_until(self, node: int) -> Dataset:
        dataset: Dataset = Pickled.from_blob(self._blob).value
        for _, pickled in functions_of(dataset.node):
            _ = pickled.value  # an error of unpickling is none of an element
        self._dataset = dataset
        return self._last_until(node)

    def _last_until(self, node: int) -> Dataset:
        assert self._dataset is not None
        return self._dataset._with_node(list(number(self._dataset.node))[node])


def _next_outcome(iterator: Iterator) -> Outcome:
    try:
        element = next(iterator)
    except StopIteration:
        return END
    except Exception as error:  # noqa: BLE001 - an error occupies the position of its element
        return outcome_of_error(error)
    return outcome_of(element)
