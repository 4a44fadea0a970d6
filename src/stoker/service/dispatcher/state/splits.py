"""Splits: the pages of listed ones, and those that tasks have begun."""

from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.messages import SplitSource


def drop_pages(state: State, iteration: Iteration) -> None:
    """Drop the lists of an iteration, and the pages that no other iteration has."""
    for values in iteration.values.values():
        for digest, _ in values.digests:
            state.page_uses[digest] -= 1
            if not state.page_uses[digest]:
                del state.pages[digest], state.page_uses[digest]
    iteration.values = {}  # not cleared: `SplitListing.free_pages` frees them in steps


class PageStored(Record, frozen=True):
    """A page of listed splits, which several iterations may have; `values` is the encoded list.

    `digest` is its `listed_values.page_digest`. It is dropped with the last iteration that has it.
    """

    digest: bytes
    values: bytes

    def fits(self, state: State) -> bool:
        """Return whether the page is new."""
        return self.digest not in state.pages

    def apply(self, state: State) -> None:
        """Store the page."""
        state.pages[self.digest] = self.values


class PageListed(Record, frozen=True):
    """A worker has listed the next `count` splits of a source: those of a stored page."""

    iteration_id: int
    source: int
    count: int
    digest: bytes

    def fits(self, state: State) -> bool:
        """Return whether the page is stored."""
        return self.digest in state.pages and self.count > 0

    def apply(self, state: State) -> None:
        """Append the page to the list."""
        # Several iterations may list the page, which is dropped with the last iteration.
        state.page_uses[self.digest] += 1
        lists = state.iterations[self.iteration_id].values
        values = lists.setdefault(self.source, ListedValues())
        values.add(self.count, state.pages[self.digest], self.digest)


class ListingDropped(Record, frozen=True):
    """The listing of an iteration has ended early, and its pages are dropped."""

    iteration_id: int

    def apply(self, state: State) -> None:
        """Drop the pages."""
        drop_pages(state, state.iterations[self.iteration_id])


class SplitsKnown(Record, frozen=True):
    """The sources whose splits are assigned; all pages of the listed ones were recorded before."""

    iteration_id: int
    sources: list[SplitSource]

    def fits(self, state: State) -> bool:
        """Return whether they were not known before."""
        return state.iterations[self.iteration_id].sources is None

    def apply(self, state: State) -> None:
        """Note the sources."""
        sources = {source.number: source for source in self.sources}
        state.iterations[self.iteration_id].sources = sources


# Assigned splits are not recorded: a split that a restarted dispatcher forgets is announced by its
# holder before being read. (docs/decisions/043)
class SplitsBegun(Record, frozen=True):
    """A task reads the splits in `ranges` of ``[start, stop)``; no other task ever does."""

    task_id: int
    source: int
    source_epoch: int
    ranges: list[tuple[int, int]]

    def fits(self, state: State) -> bool:
        """Return whether the ranges are those of splits that are not begun."""
        iteration = state.tasks[self.task_id].iteration
        source = (iteration.sources or {}).get(self.source)
        if source is None:
            return False
        tracker = splits_of(iteration.mode_state).tracker(source, self.source_epoch)
        before = 0
        for start, stop in self.ranges:  # in order, so that they do not overlap
            inside = before <= start < stop <= tracker.total
            if not inside or not tracker.begun.is_disjoint(start, stop):
                return False
            before = stop
        return bool(self.ranges)

    def apply(self, state: State) -> None:
        """Mark the splits."""
        iteration = state.tasks[self.task_id].iteration
        assert iteration.sources is not None
        begun, source = splits_of(iteration.mode_state), iteration.sources[self.source]
        begun.begin(source, self.source_epoch, self.ranges, self.task_id)


class SplitsDone(Record, frozen=True):
    """A task has received the end of an epoch of a source."""

    task_id: int
    source: int
    source_epoch: int

    def fits(self, state: State) -> bool:
        """Return whether splits of the source are assigned."""
        return self.source in (state.tasks[self.task_id].iteration.sources or {})

    def apply(self, state: State) -> None:
        """Remove the task from the epoch."""
        begun = splits_of(state.tasks[self.task_id].iteration.mode_state)
        begun.leave(self.source, self.source_epoch, self.task_id)
