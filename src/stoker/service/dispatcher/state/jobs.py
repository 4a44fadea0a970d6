"""Jobs: the datasets that they read, and their end by an operator."""

import logging

from stoker.service.dispatcher.entities.entities import JobEntry
from stoker.service.dispatcher.entities.registered import JobInfo
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.plurals import plural

REMEMBERED_CANCELLED = 4096
"""Latest clients of cancelled jobs that are refused with the reason when they connect again."""


def add_job(state: State, job: JobEntry) -> None:
    """Add a job to the tables of the state."""
    state.jobs[job.added.job] = job
    state.jobs_of.setdefault(job.dataset_id, set()).add(job.added.job)


def leave_dataset(state: State, job: JobEntry) -> None:
    """Remove a job from its dataset."""
    jobs = state.jobs_of[job.dataset_id]
    jobs.discard(job.added.job)
    if not jobs:
        del state.jobs_of[job.dataset_id]


class JobAdded(JobInfo, Record, frozen=True, tag="JobAdded"):
    """A client asked for a job that did not exist."""

    adds = "job"

    def apply(self, state: State) -> None:
        """Add the job."""
        add_job(state, JobEntry(self, self.dataset_id))

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the new job."""
        mode = self.parameters.processing_mode.name
        text = f"a job was created: policy {mode}, dataset {self.dataset_id}"
        log.add(logging.INFO, text, job=self.job)


class JobDatasetChanged(Record, frozen=True):
    """A job whose tree was dropped continues with the dataset of another client."""

    job: str
    dataset_id: str

    def apply(self, state: State) -> None:
        """Change the dataset."""
        job = state.jobs[self.job]
        leave_dataset(state, job)
        job.dataset_id = self.dataset_id
        add_job(state, job)


class JobCancelled(Record, frozen=True):
    """An operator cancelled a job; its clients are refused. Records of its removal follow."""

    job: str

    def apply(self, state: State) -> None:
        """Remember the clients, which may be away."""
        cancelled = state.history.cancelled
        for iteration in state.jobs[self.job].iterations.values():
            for client in iteration.clients.values():
                # A client without a key cannot be recognized.
                if client.key:
                    cancelled[client.key] = self.job
        while len(cancelled) > REMEMBERED_CANCELLED:
            del cancelled[next(iter(cancelled))]

    def log_before(self, state: State, log: EventLog) -> None:
        """Log the end of the job."""
        epochs = state.jobs[self.job].iterations.values()
        clients = sum(len(each.clients) for each in epochs)
        refused = plural(clients, "client is refused", "clients are refused")
        log.add(logging.WARNING, f"the job was cancelled; {refused}", job=self.job)
