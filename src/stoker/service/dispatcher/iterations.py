"""Iterations: opened by clients, run as tasks on workers, ended and collected."""

from collections.abc import Iterable

from stoker.errors import ErrorRecord, FailedPreconditionError, from_record, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import entities as e
from stoker.service.dispatcher import jobs
from stoker.service.dispatcher import records as r
from stoker.service.dispatcher.catalog import find_dataset
from stoker.service.dispatcher.grants import SplitDesk
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.listing import SplitListing
from stoker.service.dispatcher.modes import mode_of
from stoker.service.dispatcher.sessions import Sessions
from stoker.service.dispatcher.task_updates import task_update
from stoker.service.splittable import check_splittable


class Iterations:
    """Takes iterations through their life.

    Args:
        config: for how long an iteration may be without clients.
        ledger: the state.
        sessions: to tell workers and clients.
        desk: grants splits.
        listing: learns splits.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        ledger: Ledger,
        sessions: Sessions,
        desk: SplitDesk,
        listing: SplitListing,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._desk = desk
        self._listing = listing
        self._idle_since: dict[int, float] = {}

    def open(self, hello: m.ClientHello) -> tuple[e.Iteration, str]:
        """The iteration a client asks for, made if it is the first; and a warning for its user.

        Raises:
            StokerError: it cannot be had.
        """
        mode_of(hello.parameters)  # refuses what this version does not have
        dataset = find_dataset(self._state, hello.dataset_id)
        jobs.check_local(self._state, hello)
        job = self._state.jobs.get(hello.job)
        warning = ""
        if job is None:
            check_splittable(hello.parameters.processing_mode, dataset.sources)
            self._ledger.commit(
                r.JobAdded(hello.job, hello.named, hello.dataset_id, hello.parameters)
            )
            job = self._state.jobs[hello.job]
        else:
            warning = jobs.check_agreement(self._state, job, hello)
        iteration = job.iterations.get(hello.epoch)
        if iteration is None:
            iteration_id, seed = self._ledger.new_id(), self._ledger.new_seed()
            self._ledger.commit(r.IterationAdded(iteration_id, hello.job, hello.epoch, seed))
            iteration = self._state.iterations[iteration_id]
        if iteration.error is not None:
            raise from_record(iteration.error)
        self._idle_since.pop(iteration.iteration_id, None)
        return iteration, warning

    def advance(self, iteration: e.Iteration, workers: Iterable[e.Worker]) -> None:
        """Takes the next step: its splits become known, then it runs on each of `workers`."""
        if iteration.finished or iteration.error is not None or not iteration.clients:
            return
        dataset = self._state.datasets[iteration.job.added.dataset_id]
        if not iteration.tasks:
            try:
                jobs.check_runnable(self._state, dataset)
            except FailedPreconditionError as error:
                self._fail(iteration, to_record(error))
                return
        if not self._listing.learn(iteration):
            return
        mode = mode_of(iteration.parameters)
        for worker in list(mode.workers_to_start(iteration, dataset, workers)):
            self._add_task(iteration, worker)

    def advance_all(self, worker: e.Worker) -> None:
        """A worker is there: every iteration may run on it."""
        for iteration in list(self._state.iterations.values()):
            known = iteration.sources is not None
            self.advance(iteration, [worker] if known else self._state.workers.values())

    def splits_listed(self, worker_id: int, answer: m.SplitsListed) -> None:
        """A worker has listed an iteration's splits."""
        error = self._listing.answered(worker_id, answer)
        iteration = self._state.iterations.get(answer.iteration_id)
        if iteration is None:
            return
        if error is not None:
            self._fail(iteration, error)
        else:
            self.advance(iteration, self._state.workers.values())

    def task_ended(self, task: e.Task, now: float) -> None:
        """A task's pipeline is at its end."""
        if task.running:
            self._ledger.commit(r.TaskEnded(task.task_id))
            self._desk.forget({task.task_id})
            self._after(task.iteration, [])

    def tasks_lost(self, worker_id: int, tasks: list[e.Task]) -> None:
        """The worker of these tasks is gone, and they with it."""
        self._desk.forget({task.task_id for task in tasks})
        for iteration in self._listing.lose(worker_id):
            self.advance(iteration, self._state.workers.values())
        for task in tasks:
            self._after(task.iteration, [task])

    def client_left(self, iteration: e.Iteration, now: float) -> None:
        """A client is gone; if it was the last, nobody may ever read what is left."""
        if iteration.clients:
            return
        if iteration.error is not None:
            self._remove(iteration)  # who asks again gets another try
            return
        self._idle_since[iteration.iteration_id] = now
        if iteration.finished and not iteration.stopped:
            self._stop(iteration)

    def collect(self, now: float) -> None:
        """Removes iterations nobody has read for a while, where the mode does not keep them."""
        timeout = self._config.job_gc_timeout_ms / 1000
        if timeout < 0:
            return
        for iteration_id, since in list(self._idle_since.items()):
            iteration = self._state.iterations[iteration_id]
            mode = mode_of(iteration.parameters)
            if now - since >= timeout and mode.is_collected(iteration.job, self._config):
                self._remove(iteration)

    def tell(self, client: e.Client, changed: Iterable[e.Task]) -> None:
        """Tells a client what has changed for it."""
        update = task_update(client, changed)
        if update is not None:
            self._sessions.send(client.client_id, update)

    def _add_task(self, iteration: e.Iteration, worker: e.Worker) -> None:
        worker_id = worker.added.worker_id
        task_id, seed = self._ledger.new_id(), self._ledger.new_seed()
        self._ledger.commit(r.TaskAdded(task_id, iteration.iteration_id, worker_id, seed))
        task = self._state.tasks[task_id]
        self._sessions.send(worker_id, mode_of(iteration.parameters).task_start(task))
        self._tell_all(iteration, [task])

    def _after(self, iteration: e.Iteration, changed: list[e.Task]) -> None:
        """A task has ended: others may take over its splits, or all may be over."""
        self._desk.settle(iteration)
        self._tell_all(iteration, changed)
        if iteration.finished and not iteration.clients and not iteration.stopped:
            self._stop(iteration)

    def _tell_all(self, iteration: e.Iteration, changed: list[e.Task]) -> None:
        for client in iteration.clients.values():
            self.tell(client, changed)

    def _fail(self, iteration: e.Iteration, error: ErrorRecord) -> None:
        self._ledger.commit(r.IterationFailed(iteration.iteration_id, error))
        for client_id in iteration.clients:
            self._sessions.send(client_id, m.Refused(error))

    def _stop(self, iteration: e.Iteration) -> None:
        for task in iteration.tasks.values():
            if not task.lost:
                self._sessions.send(task.worker.worker_id, m.TaskStop(task.task_id))
        self._desk.forget(set(iteration.tasks))
        self._ledger.commit(r.TasksStopped(iteration.iteration_id))

    def _remove(self, iteration: e.Iteration) -> None:
        if not iteration.stopped:
            self._stop(iteration)
        self._listing.forget(iteration.iteration_id)
        self._idle_since.pop(iteration.iteration_id, None)
        self._ledger.commit(r.IterationRemoved(iteration.iteration_id))
