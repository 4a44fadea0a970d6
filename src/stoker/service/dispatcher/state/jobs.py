"""Jobs: the datasets that they read, and their end by an operator."""

import logging

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import JobEntry
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State
from stoker.service.plurals import plural

handlers = Handlers()


REMEMBERED_CANCELLED = 4096
"""Latest clients of cancelled jobs that are refused with the reason when they connect again."""


@handlers.add
def _add_job(state: State, job: JobEntry) -> None:
    state.jobs[job.added.job] = job
    state.jobs_of.setdefault(job.dataset_id, set()).add(job.added.job)


@handlers.apply
def _apply_job_added(state: State, record: r.JobAdded) -> None:
    _add_job(state, JobEntry(record, record.dataset_id))


@handlers.log_after
def _log_job_added(_state: State, log: EventLog, record: r.JobAdded) -> None:
    mode = record.parameters.processing_mode.name
    text = f"a job was created: policy {mode}, dataset {record.dataset_id}"
    log.add(logging.INFO, text, job=record.job)


@handlers.apply
def _apply_job_dataset_changed(state: State, record: r.JobDatasetChanged) -> None:
    job = state.jobs[record.job]
    leave_dataset(state, job)
    job.dataset_id = record.dataset_id
    state.jobs_of.setdefault(record.dataset_id, set()).add(record.job)


@handlers.apply
def _apply_job_cancelled(state: State, record: r.JobCancelled) -> None:
    cancelled = state.history.cancelled
    for iteration in state.jobs[record.job].iterations.values():
        for client in iteration.clients.values():
            if client.key:
                cancelled[client.key] = record.job
    while len(cancelled) > REMEMBERED_CANCELLED:
        del cancelled[next(iter(cancelled))]


@handlers.log_before
def _log_job_cancelled(state: State, log: EventLog, record: r.JobCancelled) -> None:
    epochs = state.jobs[record.job].iterations.values()
    clients = sum(len(each.clients) for each in epochs)
    refused = plural(clients, "client is refused", "clients are refused")
    log.add(logging.WARNING, f"the job was cancelled; {refused}", job=record.job)


def leave_dataset(state: State, job: JobEntry) -> None:
    """Remove a job from its dataset."""
    jobs = state.jobs_of[job.dataset_id]
    jobs.discard(job.added.job)
    if not jobs:
        del state.jobs_of[job.dataset_id]
