"""Workers: registered, draining, and lost with their tasks."""

import logging

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import WorkerEntry
from stoker.service.dispatcher.entities.registered import WorkerInfo
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.dispatcher.state.tasks import lose_task
from stoker.service.plurals import plural


def add_worker(state: State, worker: WorkerEntry) -> None:
    """Add a worker to the tables of the state."""
    added = worker.added
    state.workers[added.worker_id] = worker
    state.places.add(added)
    state.addresses[added.address] = added.worker_id
    if process := added.process:
        state.local_workers.setdefault(process, {})[added.worker_id] = worker


class WorkerAdded(WorkerInfo, Record, frozen=True, tag="WorkerAdded"):
    """A worker registered."""

    adds = "worker_id"

    def fits(self, state: State) -> bool:
        """Return whether the address and the place are free."""
        is_free = self.place is None or self.place not in state.places.workers
        return self.address not in state.addresses and is_free

    def apply(self, state: State) -> None:
        """Add the worker."""
        add_worker(state, WorkerEntry(self))

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the worker."""
        tags = f" with tags {', '.join(self.tags)}" if self.tags else ""
        text = f"a worker joined{tags}; there are {len(state.workers)}"
        log.add(logging.INFO, text, worker=self.address)


class WorkerDrainBegun(Record, frozen=True, tag="WorkerDraining"):
    """A worker will stop: it gets no more tasks and splits."""

    worker_id: int

    def apply(self, state: State) -> None:
        """Mark the worker."""
        state.workers[self.worker_id].draining = True

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the drain."""
        worker = state.workers[self.worker_id]
        log.add(logging.INFO, "a worker is draining", worker=worker.added.address)


class WorkerLost(Record, frozen=True):
    """A worker was removed, and its tasks with it; `undelivered` as in `WorkerLeave`."""

    worker_id: int
    reason: str
    undelivered: dict[int, int] = {}

    def fits(self, state: State) -> bool:
        """Return whether there is a reason: a task without one would not count as lost."""
        return bool(self.reason)

    def apply(self, state: State) -> None:
        """Remove the worker, and lose its tasks."""
        worker = state.workers.pop(self.worker_id)
        del state.addresses[worker.added.address]
        state.places.remove(worker.added)
        if process := worker.added.process:
            state.local_workers[process].pop(self.worker_id)
            if not state.local_workers[process]:
                del state.local_workers[process]
        for task in worker.tasks.values():
            lose_task(state, task, self.reason, self.undelivered.get(task.task_id))

    def log_before(self, state: State, log: EventLog) -> None:
        """Log the loss; the planned end of a worker is no warning, but the status shows it."""
        worker, planned = state.workers[self.worker_id], self.reason == m.STOPPED
        number = len(worker.tasks)
        ends = f"; {plural(number, 'task ends', 'tasks end')}" if number else ""
        line = log.add(
            logging.INFO if planned else logging.WARNING,
            f"worker {worker.added.address} {'left' if planned else 'was lost'}: "
            f"{self.reason}{ends}",
            worker=worker.added.address,
        )
        if planned:
            log.remember(line)
