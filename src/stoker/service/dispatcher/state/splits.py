"""Splits: the pages of listed ones, and those that tasks have begun."""

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State

handlers = Handlers()


@handlers.add
def _add_page(state: State, page: r.PageStored) -> None:
    state.pages[page.digest] = page.values


@handlers.check
def _check_page_stored(state: State, record: r.PageStored) -> bool:
    return record.digest not in state.pages


@handlers.apply
def _apply_page_stored(state: State, record: r.PageStored) -> None:
    _add_page(state, record)


@handlers.check
def _check_page_listed(state: State, record: r.PageListed) -> bool:
    return record.digest in state.pages and record.count > 0


@handlers.apply
def _apply_page_listed(state: State, record: r.PageListed) -> None:
    state.page_uses[record.digest] += 1
    lists = state.iterations[record.iteration_id].values
    values = lists.setdefault(record.source, ListedValues())
    values.add(record.count, state.pages[record.digest], record.digest)


@handlers.apply
def _apply_listing_dropped(state: State, record: r.ListingDropped) -> None:
    drop_pages(state, state.iterations[record.iteration_id])


@handlers.check
def _check_splits_known(state: State, record: r.SplitsKnown) -> bool:
    return state.iterations[record.iteration_id].sources is None


@handlers.apply
def _apply_splits_known(state: State, record: r.SplitsKnown) -> None:
    iteration = state.iterations[record.iteration_id]
    iteration.sources = {source.number: source for source in record.sources}


@handlers.check
def _check_splits_begun(state: State, record: r.SplitsBegun) -> bool:
    iteration = state.tasks[record.task_id].iteration
    source = (iteration.sources or {}).get(record.source)
    if source is None:
        return False
    tracker = splits_of(iteration.mode_state).tracker(source, record.source_epoch)
    before = 0
    for start, stop in record.ranges:  # in order, so that they do not overlap
        if not before <= start < stop <= tracker.total or not tracker.begun.is_disjoint(
            start, stop
        ):
            return False
        before = stop
    return bool(record.ranges)


@handlers.apply
def _apply_splits_begun(state: State, record: r.SplitsBegun) -> None:
    iteration = state.tasks[record.task_id].iteration
    assert iteration.sources is not None
    source = iteration.sources[record.source]
    begun = splits_of(iteration.mode_state)
    begun.begin(source, record.source_epoch, record.ranges, record.task_id)


@handlers.check
def _check_splits_done(state: State, record: r.SplitsDone) -> bool:
    return record.source in (state.tasks[record.task_id].iteration.sources or {})


@handlers.apply
def _apply_splits_done(state: State, record: r.SplitsDone) -> None:
    begun = splits_of(state.tasks[record.task_id].iteration.mode_state)
    begun.leave(record.source, record.source_epoch, record.task_id)


def drop_pages(state: State, iteration: Iteration) -> None:
    """Drop the lists of an iteration, and the pages that no other iteration has."""
    for values in iteration.values.values():
        for digest, _ in values.digests:
            state.page_uses[digest] -= 1
            if not state.page_uses[digest]:
                del state.pages[digest], state.page_uses[digest]
    iteration.values = {}  # not cleared: `SplitListing.free_pages` frees them in steps
