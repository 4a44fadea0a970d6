"""Measurements of the stages of an open pipeline."""

import threading
from collections.abc import Callable

from stoker.dataset.bottleneck import Bottleneck
from stoker.dataset.streams.stage_report import StageReport


class Meters:
    """The stages of a pipeline that is opened for one epoch, and what was measured of them.

    Attributes:
        services: for stages that read a service, by number, a function that returns the service's
            own bottleneck, or None if it does not know.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.services: dict[int, Callable[[], Bottleneck | None]] = {}

    def reports(self) -> list[StageReport]:
        """Return the measurements of the stages so far, inputs first; from any thread."""
        return []
