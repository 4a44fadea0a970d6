"""The answer to `GetStatus`, from the state and from what heartbeats have said.

It runs on the dispatcher's only loop, so it looks at workers, epochs and clients, and at the tasks
that compute at the moment, but not at all tasks. Those of one job are described if it is asked for:
of epochs that have not ended, and of the latest. A job may have ended hundreds.
"""

import logging

import msgspec

from stoker.dataset.tree.outline import outline
from stoker.dataset.tree.structure import kinds_of
from stoker.elements.spec import spec_from_wire
from stoker.service import messages as m
from stoker.service import status as st
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.iterations.catalog import find_dataset
from stoker.service.dispatcher.iterations.jobs import find_job
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.peers.reports import Amounts, ClientReports, Reports
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.dispatcher.state.event_log import Event
from stoker.service.process.logs import epoch_text
from stoker.version import VERSION

_NO_RATE = Amounts()


# Status is made from heartbeats that the dispatcher has anyway; no worker is asked.
# (docs/decisions/008)
class StatusBuilder:
    """Describe the service; changes nothing.

    Args:
        ledger: the state, and the latest events.
        sessions: the open sessions.
        reports: totals and rates.
        started_at: the time at which the dispatcher was started, in seconds.
        journaled: its records are stored.
    """

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        reports: Reports,
        started_at: float,
        *,
        journaled: bool,
    ) -> None:
        self._state = ledger.state
        self._events = ledger.events
        self._sessions = sessions
        self._reports = reports
        self._started_at = started_at
        self._journaled = journaled

    def answer(self, request: m.GetStatus, now: float) -> m.StatusReply:
        """Return the state of the service.

        Raises:
            NotFoundError: if the request names a job or dataset that does not exist.
        """
        state, job, dataset_id = self._state, request.job, request.dataset_id
        if dataset_id and dataset_id not in state.datasets:
            find_dataset(state, dataset_id)  # raises
        if job or dataset_id:
            workers, events = [], []
            jobs = [find_job(state, job)] if job else []
            datasets = [state.datasets[dataset_id]] if dataset_id else []
        else:
            workers = [state.workers[x] for _, x in sorted(state.addresses.items())]
            jobs, datasets = list(state.jobs.values()), list(state.datasets.values())
            events = list(self._events.recent)
        rates, rates_of_tasks = self._rates(now)
        # All jobs together may have 100,000 tasks.
        detailed = rates_of_tasks if job else None
        found = st.Status(
            VERSION,
            now - self._started_at,
            self._journaled,
            workers=[self._worker(each, now) for each in workers],
            jobs=[self._job(each, rates, detailed, now) for each in jobs],
            datasets=[self._dataset(each, bool(dataset_id)) for each in datasets],
            events=[_event(each, now) for each in events],
        )
        return m.StatusReply(found)

    def _rates(self, now: float) -> tuple[dict[int, Amounts], dict[int, Amounts]]:
        """Return the rates of epochs, and of the tasks that compute."""
        epochs: dict[int, Amounts] = {}
        tasks: dict[int, Amounts] = {}
        for worker_id, task_id, rate in self._reports.task_rates():
            task = self._state.tasks.get(task_id)
            # The rate of a silent worker is that of its last heartbeat.
            if task is not None and self._sessions.is_live(worker_id, now):
                tasks[task_id] = rate
                epoch = epochs.setdefault(task.iteration.iteration_id, Amounts())
                epoch.add(rate.elements, rate.bytes)
        return epochs, tasks

    def _silent_seconds(self, holder: int, now: float) -> float:
        return round(max(0.0, self._sessions.leases.age(holder, now)), 3)

    def _worker(self, worker: e.WorkerEntry, now: float) -> st.WorkerStatus:
        added, worker_id = worker.added, worker.added.worker_id
        reports = self._reports.worker(worker_id)
        live = self._sessions.is_live(worker_id, now)
        rate = reports.rate if live else _NO_RATE
        started = reports.started_at
        return st.WorkerStatus(
            address=added.address,
            connected=self._sessions.connected(worker_id),
            silent_seconds=self._silent_seconds(worker_id, now),
            uptime=None if started is None else round(now - started, 3),
            version=reports.version,
            python=added.versions.python,
            numpy=added.versions.numpy,
            tags=added.tags,
            data_transfer_addresses=added.data_transfer_addresses,
            draining=worker.draining,
            tasks=len(worker.tasks),
            active_tasks=len(reports.rates) if live else 0,
            shard=added.place,
            shared_memory="shm" in added.data_transfer_addresses,
            elements_per_second=rate.elements,
            bytes_per_second=rate.bytes,
            loading=reports.loading if live else None,
        )

    def _job(
        self,
        job: e.JobEntry,
        rates: dict[int, Amounts],
        tasks: dict[int, Amounts] | None,
        now: float,
    ) -> st.JobStatus:
        parameters = job.added.parameters
        epochs = list(job.iterations.values())
        return st.JobStatus(
            name=job.added.job,
            named=job.added.named,
            dataset_id=job.dataset_id,
            processing_mode=parameters.processing_mode.name,
            target_workers=parameters.target_workers,
            num_consumers=parameters.num_consumers,
            cross_trainer_cache=parameters.use_cross_trainer_cache,
            epochs=[
                self._epoch(x, rates, tasks if x is epochs[-1] or not x.finished else None)
                for x in epochs
            ],
            clients=[self._client(client, now) for x in epochs for client in x.clients.values()],
        )

    def _epoch(
        self,
        iteration: e.Iteration,
        rates: dict[int, Amounts],
        tasks: dict[int, Amounts] | None,
    ) -> st.EpochStatus:
        rate = rates.get(iteration.iteration_id, _NO_RATE)
        computed = self._reports.computed(iteration.iteration_id)
        damaged = list(iteration.damaged.values())
        lost = [task for task in damaged if task.lost and task.elements_lost != 0]
        details = []
        if tasks is not None:
            details = [
                self._task(task, tasks.get(x, _NO_RATE)) for x, task in iteration.tasks.items()
            ]
        return st.EpochStatus(
            epoch=epoch_text(iteration.epoch),
            state=_epoch_state(iteration),
            error="" if iteration.error is None else iteration.error.message,
            tasks=len(iteration.tasks),
            running_tasks=0 if iteration.stopped else iteration.counts.running,
            clients=len(iteration.clients),
            elements=round(computed.elements),
            bytes=round(computed.bytes),
            errors=round(computed.errors),
            elements_per_second=rate.elements,
            bytes_per_second=rate.bytes,
            tasks_lost=len(lost),
            splits_lost=sum(task.splits_lost for task in lost),
            elements_lost=sum((task.elements_lost or 0) + task.dropped for task in damaged),
            poisoned=len(iteration.poison.poisoned),
            details=details,
        )

    def _task(self, task: e.TaskEntry, rate: Amounts) -> st.TaskStatus:
        report = self._reports.task(task.task_id)
        return st.TaskStatus(
            task_id=str(task.task_id),
            worker=task.worker.address,
            state=_task_state(task),
            lost=task.lost,
            clients=len(task.readers),
            elements=report.elements,
            bytes=report.bytes,
            errors=report.errors,
            elements_per_second=rate.elements,
            bytes_per_second=rate.bytes,
        )

    def _client(self, client: e.ClientEntry, now: float) -> st.ClientStatus:
        client_id = client.client_id
        reports = self._reports.client(client_id)
        last = reports.last
        if not self._sessions.is_live(client_id, now):
            reports = ClientReports(last)  # no rates: nobody knows what the client does now
        waiting = reports.per_second("waited")
        return st.ClientStatus(
            client_id=str(client_id),
            epoch=epoch_text(client.iteration.epoch),
            connected=self._sessions.connected(client_id),
            silent_seconds=self._silent_seconds(client_id, now),
            consumer_index=client.consumer_index,
            tasks=len(client.tasks),
            elements=last.elements,
            bytes=last.bytes,
            elements_per_second=reports.per_second("elements") or 0.0,
            bytes_per_second=reports.per_second("bytes") or 0.0,
            waiting=None if waiting is None else min(1.0, max(0.0, waiting)),
            bottleneck=last.bottleneck,
            sentence=last.sentence,
            position=last.position,
        )

    def _dataset(self, dataset: DatasetInfo, detailed: bool) -> st.DatasetStatus:
        return st.DatasetStatus(
            dataset.dataset_id,
            dataset.kept,
            dataset.size,
            tree_bytes=len(dataset.tree),
            compression=dataset.compression,
            jobs=sorted(self._state.jobs_of.get(dataset.dataset_id, ())),
            details=_details(dataset) if detailed else None,
        )


def _epoch_state(iteration: e.Iteration) -> str:
    if iteration.error is not None:
        return "failed"
    if iteration.stopped:
        # A stopped iteration is always `finished`, so the rule of the mode says which of both it
        # was.
        finished = mode_of(iteration.parameters).is_finished(iteration)
        return "finished" if finished else "stopped"
    if iteration.finished:
        return "finished"
    if not iteration.tasks:
        return "starting"
    return "computed" if iteration.computed else "running"


def _task_state(task: e.TaskEntry) -> str:
    if task.lost:
        return "lost"
    if task.delivered:
        return "delivered"
    if task.exhausted:
        return "computed"
    return "stopped" if task.iteration.stopped else "running"


def _details(dataset: DatasetInfo) -> st.DatasetDetails:
    tree = outline(dataset.tree) if dataset.tree else kinds_of(dataset.structure)
    return st.DatasetDetails(
        tree,
        str(spec_from_wire(dataset.spec)),
        msgspec.to_builtins(dataset.options),
        functions=list(dict.fromkeys(function.site for function in dataset.functions)),
        python=dataset.versions.python,
        numpy=dataset.versions.numpy,
    )


def _event(event: Event, now: float) -> st.EventStatus:
    fields = event.line.fields
    return st.EventStatus(
        round(now - event.at, 3),
        logging.getLevelName(event.line.level),
        event.line.text,
        worker=fields.get("worker", ""),
        job=fields.get("job", ""),
        epoch=fields.get("epoch", ""),
    )
