"""Finding the splits of an iteration: cut here, or listed by a worker.

A worker lists files, because it has the data's libraries and credentials. The list is recorded, so
files that appear or vanish later change nothing.
"""

from typing import Any

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.dispatcher.entities import Iteration
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.modes import mode_of
from stoker.service.dispatcher.placement import can_run
from stoker.service.dispatcher.records import DatasetAdded, SplitsKnown
from stoker.service.dispatcher.sessions import Sessions


class SplitListing:
    """Find splits; at most one worker lists those of an iteration at a time.

    Attributes:
        listers: iteration → the worker that lists its splits.
    """

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self.listers: dict[int, int] = {}
        self._ledger = ledger
        self._sessions = sessions

    def learn(self, iteration: Iteration) -> bool:
        """Cut index sources and ask a worker to list the others; return whether all are known."""
        if iteration.sources is not None:
            return True
        if not self._sources_to_list(iteration):
            self._know(iteration, {})
            return True
        if iteration.iteration_id not in self.listers:
            self._ask(iteration)
        return False

    def answered(self, worker_id: int, answer: m.SplitsListed) -> ErrorRecord | None:
        """Record what a worker listed, if it was asked to; return the error if listing failed."""
        # A worker that was replaced, or whose iteration was removed, may still answer.
        if self.listers.get(answer.iteration_id) != worker_id:
            return None
        del self.listers[answer.iteration_id]
        iteration = self._ledger.state.iterations[answer.iteration_id]
        if answer.error is not None:
            return answer.error
        missing = set(self._sources_to_list(iteration)) - answer.splits.keys()
        if missing:
            return ErrorRecord(
                "FailedPreconditionError", f"no splits were listed for sources {sorted(missing)}"
            )
        self._know(iteration, answer.splits)
        return None

    def resend(self, worker_id: int) -> None:
        """Repeat a worker's requests on its new session: the first ones may be lost."""
        for iteration_id, lister in self.listers.items():
            if lister == worker_id:
                self._request(worker_id, self._ledger.state.iterations[iteration_id])

    def lose(self, worker_id: int) -> list[Iteration]:
        """Remove a worker; return the iterations whose splits another worker must list."""
        lost = [iteration for iteration, lister in self.listers.items() if lister == worker_id]
        for iteration_id in lost:
            del self.listers[iteration_id]
        return [self._ledger.state.iterations[iteration_id] for iteration_id in lost]

    def forget(self, iteration_id: int) -> None:
        """Remove an iteration."""
        self.listers.pop(iteration_id, None)

    def _ask(self, iteration: Iteration) -> None:
        dataset = self._dataset(iteration)
        for worker_id, worker in self._ledger.state.workers.items():
            if can_run(dataset, worker.added):
                self.listers[iteration.iteration_id] = worker_id
                self._request(worker_id, iteration)
                return

    def _request(self, worker_id: int, iteration: Iteration) -> None:
        message = m.ListSplits(
            iteration.iteration_id,
            iteration.job.dataset_id,
            iteration.seed,
            iteration.epoch,
            self._sources_to_list(iteration),
        )
        self._sessions.send(worker_id, message)

    def _know(self, iteration: Iteration, listed: dict[int, list[Any]]) -> None:
        mode = mode_of(iteration.parameters)
        sources = mode.split_sources(
            self._dataset(iteration), listed, len(self._ledger.state.workers)
        )
        self._ledger.commit(SplitsKnown(iteration.iteration_id, sources, listed))

    def _sources_to_list(self, iteration: Iteration) -> list[int]:
        return mode_of(iteration.parameters).sources_to_list(self._dataset(iteration))

    def _dataset(self, iteration: Iteration) -> DatasetAdded:
        return self._ledger.state.datasets[iteration.job.dataset_id]
