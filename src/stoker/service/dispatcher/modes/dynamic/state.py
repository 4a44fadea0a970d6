"""The recorded state of DYNAMIC: the splits that tasks have begun."""

from stoker.service.dispatcher.entities.split_ranges import SplitRanges
from stoker.service.dispatcher.entities.split_tracker import SplitTracker
from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.messages import SplitSource


class DynamicState(ModeState, tag=True, kw_only=True):
    """Begun splits of an iteration.

    Attributes:
        trackers: (source, its epoch) → its begun splits, until all are read.
        read_epochs: source → its epochs whose splits are all read.
        splits_read: task → the number of splits that the task has begun of these epochs.
    """

    trackers: dict[tuple[int, int], SplitTracker] = {}
    read_epochs: dict[int, SplitRanges] = {}
    splits_read: dict[int, int] = {}

    def tracker(self, source: SplitSource, source_epoch: int) -> SplitTracker:
        """Return the begun splits of an epoch of a source, which only `begin` changes."""
        tracker = self.trackers.get((source.number, source_epoch))
        if tracker is not None:
            return tracker
        # A task that starts late asks for an epoch that others have read, and gets its end.
        is_read = source_epoch in self.read_epochs.get(source.number, ())
        return SplitTracker(0 if is_read else source.splits)

    def begin(
        self, source: SplitSource, source_epoch: int, ranges: list[tuple[int, int]], task_id: int
    ) -> None:
        """Mark splits as begun by a task."""
        tracker = self.tracker(source, source_epoch)
        self.trackers.setdefault((source.number, source_epoch), tracker).begin(ranges, task_id)

    def leave(self, source: int, source_epoch: int, task_id: int) -> None:
        """Remove a task from an epoch of a source, and the epoch if it was the last to read it."""
        tracker = self.trackers.get((source, source_epoch))
        if tracker is None:
            return
        tracker.leave(task_id)
        # An endless `repeat` has an epoch for each repetition, so only counts are kept of them.
        if tracker.is_read:
            del self.trackers[source, source_epoch]
            for each, count in tracker.begun_counts.items():
                self.splits_read[each] = self.splits_read.get(each, 0) + count
            self.read_epochs.setdefault(source, SplitRanges()).add(source_epoch, source_epoch + 1)

    def leave_all(self, task_id: int) -> None:
        """Remove a task that computes no more from all epochs of all sources."""
        for source, source_epoch in list(self.trackers):
            self.leave(source, source_epoch, task_id)

    def begun_by(self, task_id: int) -> int:
        """Return the number of splits that the task has begun, over all sources."""
        kept = sum(tracker.begun_counts.get(task_id, 0) for tracker in self.trackers.values())
        return kept + self.splits_read.get(task_id, 0)

    def finish(self) -> None:
        """Drop the begun splits: no task will ask for any."""
        self.trackers.clear()
        self.read_epochs.clear()
        self.splits_read.clear()
