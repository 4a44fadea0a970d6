"""Requests of operators that change the service: cancel, forget, drain."""

from dataclasses import dataclass

from stoker.errors import FailedPreconditionError, NotFoundError
from stoker.service import messages as m
from stoker.service.dispatcher.iterations.iterations import Iterations
from stoker.service.dispatcher.iterations.jobs import find_job, some_names
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.dispatcher.state.state import State


@dataclass(frozen=True)
class Operations:
    """Carry out requests of operators.

    Attributes:
        state: the state, read only.
        iterations: the jobs and datasets.
        workers: the workers.
    """

    state: State
    iterations: Iterations
    workers: Workers

    def cancel_job(self, request: m.CancelJob, now: float) -> m.Done:
        """Remove a job, and refuse its clients.

        Raises:
            NotFoundError: if no job has the name.
        """
        return m.Done(self.iterations.cancel(find_job(self.state, request.job), now))

    def forget_dataset(self, request: m.ForgetDataset) -> m.Done:
        """Remove a registered dataset.

        Raises:
            NotFoundError: if no dataset has the id.
            FailedPreconditionError: if jobs have it; names some of them.
        """
        dataset_id = request.dataset_id
        if dataset_id not in self.state.datasets:
            raise NotFoundError(f"Dataset id {dataset_id} not found")
        if dataset_id in self.state.jobs_of:
            names = some_names(sorted(self.state.jobs_of[dataset_id]))
            raise FailedPreconditionError(
                f"dataset {dataset_id} is that of {names}; end them with `stoker jobs cancel "
                "NAME`, or wait until they are removed"
            )
        self.iterations.forget_dataset(dataset_id)
        return m.Done(f"dataset {dataset_id} was forgotten")

    def drain_worker(self, request: m.DrainWorker) -> m.Done:
        """Let a worker drain and leave.

        Raises:
            NotFoundError: if no worker has the address.
        """
        address = request.worker
        worker_id = self.state.addresses.get(address)
        if worker_id is None:
            known = some_names(sorted(self.state.addresses))
            raise NotFoundError(f"no worker is at {address!r}; the workers are at: {known}")
        # An operator may repeat a request whose answer was lost.
        again = self.state.workers[worker_id].draining
        self.workers.ask_to_drain(worker_id)
        return m.Done(f"worker {address} {'is draining already' if again else 'drains'}")
