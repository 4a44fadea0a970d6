"""Cross-trainer cache: every trainer gets all elements of a task, from a window of its buffer."""

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.modes.mode import Sharing
from stoker.service.rules.checks import check_cacheable, check_repetition


class Cached(Sharing):
    """Trainers read the elements of a task each at its own speed."""

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that the dataset has no end and is read once."""
        check_repetition(hello.epoch)
        check_cacheable(dataset.size)

    def of_task(self, iteration: Iteration) -> m.AnySharing:
        """Return that the worker keeps what some trainers have not read."""
        return m.ThroughCache()
