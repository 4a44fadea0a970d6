"""Selection of the datasets that are measured, of many that are opened one after the other."""

import time

from stoker.dataset.streams.measure.meters import Meters

# To measure a dataset costs about 10 us, so that this is 0.5 %.
_SECONDS_PER_DATASET = 2e-3

# Each of the first ones is measured.
_FIRST_DATASETS = 8


class OpenedSampler:
    """Selects a dataset at this interval, which counts for those before it that were not measured.

    Args:
        meters: of the datasets.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._unmeasured = meters.weighted(0)
        self._opened = 0
        self._skipped = 0
        self._due = 0.0

    def next(self) -> Meters:
        """Return the meters of the next dataset."""
        now = time.perf_counter()
        self._skipped += 1
        if now < self._due:
            return self._unmeasured
        self._opened += self._skipped
        if self._opened >= _FIRST_DATASETS:
            self._due = now + _SECONDS_PER_DATASET
        weight, self._skipped = self._skipped, 0
        return self._meters if weight == 1 else self._meters.weighted(weight)
