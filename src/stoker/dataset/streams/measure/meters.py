"""Measurement of the streams that a context opens."""

from collections.abc import Callable, Mapping
from typing import Any

from stoker.dataset.streams.measure.bottleneck import AskService
from stoker.dataset.streams.measure.recording import Recording
from stoker.dataset.streams.measure.stage import StageNode
from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.dataset.streams.stream import Stream


class Meters:
    """Adds the streams of one tree to the recording of their pipeline.

    A node that is opened several times, as below `repeat`, is one stage. The nodes of a dataset
    that a user function returns are stages, too, the same ones for each call.

    Args:
        recording: of the pipeline; None for a new one.
        outer: the number of the stage whose function returned the tree; None without one.
        weight: the number of streams that each stream counts for; 0 measures none.

    Attributes:
        recording: of the pipeline.
    """

    def __init__(
        self, recording: Recording | None = None, outer: int | None = None, weight: int = 1
    ) -> None:
        self.recording = recording or Recording()
        self._outer = outer
        self._weight = weight

    def nested(self, node: StageNode, numbers: Mapping[Any, int]) -> "Meters":
        """Return the meters of the datasets that the function of a node returns.

        Args:
            node: the node of the function.
            numbers: the numbers of the nodes in its tree.
        """
        number = self.recording.number(self._outer, node, numbers[node])
        return Meters(self.recording, number, self._weight)

    def weighted(self, weight: int) -> "Meters":
        """Return meters that multiply all that they measure by a number."""
        return Meters(self.recording, self._outer, self._weight * weight)

    def watch(self, node: StageNode, numbers: Mapping[Any, int], stream: Stream) -> None:
        """Measure a stream that was just opened, unless it is that of the input of its node.

        Args:
            node: describes the stage.
            numbers: the numbers of the nodes in the tree.
            stream: of the node.
        """
        if self._weight and node in numbers:  # otherwise made by a node for itself
            self.recording.watch(self._outer, self._weight, node, numbers, stream)

    def join(self, root: StageNode, numbers: Mapping[Any, int]) -> None:
        """Note that a dataset of this root, which was opened, is an input of its outer stage.

        Args:
            root: describes the stage.
            numbers: the numbers of the nodes in the tree.
        """
        if self._weight and self._outer is not None and root in numbers:
            number = self.recording.number(self._outer, root, numbers[root])
            self.recording.join(self._outer, number)

    def add_service(
        self,
        node: StageNode,
        numbers: Mapping[Any, int],
        limit: AskService,
        stages: Callable[[], list[StageReport]],
        tasks: Callable[[], list[dict[str, Any]]],
    ) -> None:
        """Register a stage that reads a service.

        Args:
            node: describes the stage.
            numbers: the numbers of the nodes in the tree.
            limit: as in `Recording.services`.
            stages: as in `Recording.remote`.
            tasks: as in `Recording.tasks`.
        """
        if node in numbers:
            recording = self.recording
            number = recording.number(self._outer, node, numbers[node])
            recording.services[number] = limit
            recording.remote[number] = stages
            recording.tasks[number] = tasks
