"""Finding the splits of an iteration: cut here, or listed by a worker.

A worker lists files, because it has the data's libraries and credentials. It sends the list in
pages, each when the dispatcher asks for it, so that no message is large and no queue grows. The
pages are recorded, so files that appear or vanish later change nothing.
"""

from collections import deque
from dataclasses import dataclass

from stoker.errors import ErrorRecord, InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.entities.listed_values import ListedValues, decode_page, page_digest
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.dispatcher.state import records as r
from stoker.wire.frames import UNDECODABLE

PAGES_FREED = 20
"""Pages freed in one tick, at 50 us each: an iteration of 10 million files has 1,000."""


@dataclass
class PendingListing:
    """The list of an iteration's splits that a worker makes.

    Attributes:
        listing_id: tells its pages from those of an earlier list.
        sources: those of which not all pages have arrived; the first is asked for.
        total: the number of splits of the first; ``None`` before its first page.
    """

    listing_id: int
    worker_id: int
    iteration: Iteration
    sources: deque[int]
    total: int | None = None


class SplitListing:
    """Find splits; at most one worker lists those of an iteration at a time.

    Attributes:
        listings: by id.
    """

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self.listings: dict[int, PendingListing] = {}
        self._ledger = ledger
        self._sessions = sessions
        self._pages: list[tuple[Iteration, ListedValues]] = []

    def resume(self, iteration: Iteration) -> None:
        """Continue an iteration of an earlier dispatcher: an incomplete list is made again."""
        if iteration.sources is None and iteration.values:
            self._ledger.commit(r.ListingDropped(iteration.iteration_id))
        self._pages += [(iteration, values) for values in iteration.values.values()]

    def learn(self, iteration: Iteration) -> bool:
        """Cut index sources and ask a worker to list the others; return whether all are known."""
        if iteration.sources is not None:
            return True
        if not self._sources_to_list(iteration):
            self._know(iteration)
            return True
        if self._of(iteration) is None:
            self._begin(iteration)
        return False

    def answered(
        self, worker_id: int, answer: m.SplitsPage | m.ListingFailed
    ) -> tuple[Iteration, ErrorRecord | None] | None:
        """Record what a worker has listed, and ask for the next page.

        Returns:
            After the last page the iteration, and after a failure also the error.

        Raises:
            InvalidArgumentError: if the page is not one that the worker was asked for.
        """
        listing = self.listings.get(answer.listing_id)
        # A worker that was replaced, or whose iteration was removed, may still answer.
        if listing is None or listing.worker_id != worker_id:
            return None
        if isinstance(answer, m.ListingFailed):
            self._end(listing)
            return listing.iteration, answer.error
        known = listing.iteration.values.get(answer.source, ())
        # A request that was repeated on a new session is answered twice.
        if answer.source != listing.sources[0] or answer.start != len(known):
            return None
        count = _checked_count(answer, listing.total)
        if count:
            self._record(listing.iteration, answer, count)
        listing.total = answer.total
        if answer.start + count == answer.total:
            listing.sources.popleft()
            listing.total = None
        if listing.sources:
            self._request(listing)
            return None
        self._know(listing.iteration)
        self._end(listing)
        return listing.iteration, None

    def resend(self, worker_id: int, listings: list[int]) -> None:
        """Repeat a worker's requests on its new session: the first ones may be lost.

        Args:
            worker_id: the worker.
            listings: those that it keeps.
        """
        for listing in self.listings.values():
            if listing.worker_id == worker_id:
                self._request(listing)
        for listing_id in listings:
            if listing_id not in self.listings:
                self._sessions.send(worker_id, m.StopListing(listing_id))

    def lose(self, worker_id: int) -> list[Iteration]:
        """Remove a worker; return the iterations whose splits another worker must list."""
        lost = [listing for listing in self.listings.values() if listing.worker_id == worker_id]
        for listing in lost:
            self._end(listing)
        return [listing.iteration for listing in lost]

    def forget(self, iteration: Iteration) -> None:
        """End the listing of an iteration that runs no more."""
        listing = self._of(iteration)
        if listing is not None:
            self._end(listing)

    def free_pages(self) -> None:
        """Free some of the pages that no iteration needs any more; call it on each tick.

        All at once would take 50 ms for 10 million files.
        """
        left = PAGES_FREED
        for iteration, values in self._pages:
            if values not in iteration.values.values():
                freed = min(left, len(values.pages))
                del values.pages[len(values.pages) - freed :]
                left -= freed
        self._pages = [each for each in self._pages if each[1].pages]

    def _of(self, iteration: Iteration) -> PendingListing | None:
        found = (x for x in self.listings.values() if x.iteration is iteration)
        return next(found, None)

    def _begin(self, iteration: Iteration) -> None:
        dataset = self._dataset(iteration)
        for worker_id, worker in self._ledger.state.workers.items():
            # One worker lists for all: two lists may differ while files are written.
            if dataset.runs_on(worker.added) and not worker.draining:
                listing_id = self._ledger.new_id()
                sources = deque(self._sources_to_list(iteration))
                listing = PendingListing(listing_id, worker_id, iteration, sources)
                self.listings[listing_id] = listing
                self._request(listing)
                return

    def _request(self, listing: PendingListing) -> None:
        iteration, source = listing.iteration, listing.sources[0]
        message = m.ListSplits(
            listing.listing_id,
            iteration.job.dataset_id,
            iteration.seed,
            epoch=iteration.epoch,
            source=source,
            start=len(iteration.values.get(source, ())),
            in_order=mode_of(iteration.parameters).lists_in_order,
            salts=iteration.job.added.seeds.salts,
        )
        self._sessions.send(listing.worker_id, message)

    def _record(self, iteration: Iteration, page: m.SplitsPage, count: int) -> None:
        is_first = page.source not in iteration.values
        values = bytes(page.values)
        # The epochs of a job list the same files, whose pages are stored once. (docs/decisions/038)
        digest = page_digest(values)
        if digest not in self._ledger.state.pages:
            self._ledger.commit(r.PageStored(digest, values))
        self._ledger.commit(r.PageListed(iteration.iteration_id, page.source, count, digest))
        if is_first:
            self._pages.append((iteration, iteration.values[page.source]))

    def _end(self, listing: PendingListing) -> None:
        """Remove a listing; unless it is complete, drop its pages."""
        del self.listings[listing.listing_id]
        self._sessions.send(listing.worker_id, m.StopListing(listing.listing_id))
        if listing.iteration.sources is None and listing.iteration.values:
            self._ledger.commit(r.ListingDropped(listing.iteration.iteration_id))

    def _know(self, iteration: Iteration) -> None:
        listed = {
            source: len(iteration.values.get(source, ()))
            for source in self._sources_to_list(iteration)
        }
        mode = mode_of(iteration.parameters)
        workers = len(self._ledger.state.workers)
        sources = mode.split_sources(self._dataset(iteration), listed, workers)
        self._ledger.commit(r.SplitsKnown(iteration.iteration_id, sources))

    def _sources_to_list(self, iteration: Iteration) -> list[int]:
        return mode_of(iteration.parameters).sources_to_list(self._dataset(iteration))

    def _dataset(self, iteration: Iteration) -> DatasetInfo:
        return self._ledger.state.datasets[iteration.job.dataset_id]


def _checked_count(page: m.SplitsPage, total: int | None) -> int:
    """Return the number of values of a page.

    Raises:
        InvalidArgumentError: if they are no page of a list of `total` values.
    """
    try:
        count = len(decode_page(page.values))
    except UNDECODABLE as error:
        raise InvalidArgumentError(f"`values` of a SplitsPage must be a list: {error}") from error
    possible = page.start + count <= page.total and (count > 0 or page.total == 0)
    if not possible or total not in (None, page.total):
        raise InvalidArgumentError(
            f"a SplitsPage of {count} values from {page.start} of {page.total} is not possible"
        )
    return count
