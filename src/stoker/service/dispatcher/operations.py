"""Requests of operators that change the service: cancel a job, forget a dataset."""

from stoker.errors import FailedPreconditionError, NotFoundError
from stoker.service import messages as m
from stoker.service.dispatcher.iterations import Iterations
from stoker.service.dispatcher.jobs import NAMED_JOBS, find_job
from stoker.service.dispatcher.state import State


class Operations:
    """Carry out requests of operators.

    Args:
        state: the state, read only.
        iterations: the jobs and datasets.
    """

    def __init__(self, state: State, iterations: Iterations) -> None:
        self._state = state
        self._iterations = iterations

    def cancel_job(self, request: m.CancelJob, now: float) -> m.Done:
        """Remove a job, and refuse its clients.

        Raises:
            NotFoundError: if no job has the name.
        """
        return m.Done(self._iterations.cancel(find_job(self._state, request.job), now))

    def forget_dataset(self, request: m.ForgetDataset) -> m.Done:
        """Remove a registered dataset.

        Raises:
            NotFoundError: if no dataset has the id.
            FailedPreconditionError: if jobs have it; names some of them.
        """
        dataset_id = request.dataset_id
        if dataset_id not in self._state.datasets:
            raise NotFoundError(f"Dataset id {dataset_id} not found")
        if names := sorted(self._state.jobs_of.get(dataset_id, ())):
            more = ", ..." if len(names) > NAMED_JOBS else ""
            raise FailedPreconditionError(
                f"dataset {dataset_id} is that of {', '.join(map(repr, names[:NAMED_JOBS]))}{more};"
                " end them with `stoker jobs cancel NAME`, or wait until they are removed"
            )
        self._iterations.forget_dataset(dataset_id)
        return m.Done(f"dataset {dataset_id} was forgotten")
