"""The dispatcher without I/O: messages and ticks in, actions out.

`received`, `disconnected`, `tick` and `call` return what the shell must do. What a request changes is
written as records (`state.py`) and applied; what concerns only the living (sessions, leases, requests
that wait) is kept here and not recorded. A *peer* is the shell's number for one open session.
"""

import random
from dataclasses import dataclass
from typing import TypeAlias

from stoker.dataset.node import IndexSplits, ListedSplits
from stoker.errors import ErrorRecord, FailedPreconditionError, NotFoundError, StokerError
from stoker.errors import UnavailableError, from_record, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import jobs, state as s
from stoker.service.dispatcher.catalog import find_dataset, known_id, new_dataset
from stoker.service.dispatcher.grants import SplitDesk
from stoker.service.dispatcher.leases import Leases
from stoker.service.dispatcher.splits import split_total


@dataclass(frozen=True)
class Send:
    """Send `message` on the session of `peer`."""

    peer: int
    message: m.FromDispatcher


@dataclass(frozen=True)
class Hangup:
    """End the session of `peer`, after what was sent to it."""

    peer: int


Action: TypeAlias = Send | Hangup


class Dispatcher:
    """Coordinates; runs no user code and never unpickles.

    Args:
        config: timeouts and intervals.
        rng: ids and seeds are drawn from it.
        now: seconds, on the clock of all later calls.
    """

    def __init__(self, config: DispatcherConfig, rng: random.Random, now: float) -> None:
        self.state = s.State()
        self.journal_id = f"{rng.getrandbits(64):016x}"
        self._config = config
        self._rng = rng
        self._last_id = rng.getrandbits(40) << 20
        self._leases = Leases(
            now, stall=min(config.worker_timeout_ms, config.client_timeout_ms) / 2000
        )
        self._desk = SplitDesk(self.state, self._commit, self._send_to_task)
        self._holders: dict[int, int] = {}
        self._peers: dict[int, int] = {}
        self._listing: dict[int, int] = {}
        self._idle_since: dict[int, float] = {}
        self._next_collection = now + config.job_gc_check_interval_ms / 1000
        self._actions: list[Action] = []

    # ── what the shell calls ──────────────────────────────────────────────────────────────────────
    def received(self, peer: int, message: m.ToDispatcher, now: float) -> list[Action]:
        """A message came on the session of `peer`."""
        try:
            self._receive(peer, message, now)
        except StokerError as error:
            self._refuse(peer, error)
        return self._take_actions()

    def disconnected(self, peer: int, now: float) -> list[Action]:
        """The session of `peer` broke. Its holder keeps its lease, and may come back."""
        holder = self._holders.pop(peer, None)
        if holder is not None and self._peers.get(holder) == peer:
            del self._peers[holder]
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Time passed: expires leases and collects what nobody reads."""
        for holder in self._leases.expired(now):
            if holder in self.state.workers:
                seconds = self._config.worker_timeout_ms / 1000
                self._lose_worker(holder, f"it was not heard of for {seconds:g} s", now)
            else:
                self._release_client(holder, now)
        if now >= self._next_collection:
            self._next_collection = now + self._config.job_gc_check_interval_ms / 1000
            self._collect(now)
        return self._take_actions()

    def call(self, request: m.Request, now: float) -> tuple[m.Reply, list[Action]]:
        """A question without a session."""
        try:
            reply = self._answer(request, now)
        except StokerError as error:
            reply = m.Failed(to_record(error))
        return reply, self._take_actions()

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────
    def _receive(self, peer: int, message: m.ToDispatcher, now: float) -> None:
        if isinstance(message, m.WorkerHello):
            self._worker_hello(peer, message, now)
        elif isinstance(message, m.ClientHello):
            self._client_hello(peer, message, now)
        elif (holder := self._holders.get(peer)) is not None:
            self._leases.renew(holder, now)
            if isinstance(message, m.SplitRequest):
                self._split_request(holder, message)
            elif isinstance(message, m.SplitsListed):
                self._splits_listed(holder, message)
            elif isinstance(message, m.TaskExhausted):
                self._task_exhausted(holder, message.task_id, now)
            elif isinstance(message, m.WorkerLeave):
                self._lose_worker(holder, "it was stopped", now)
            elif isinstance(message, m.ClientClose):
                self._release_client(holder, now)
                self._do(Hangup(peer))
        else:
            raise FailedPreconditionError(
                f"a session must open with WorkerHello or ClientHello, not {type(message).__name__}"
            )

    def _worker_hello(self, peer: int, hello: m.WorkerHello, now: float) -> None:
        protocol = _negotiate(hello.protocol_min, hello.protocol_max)
        worker_id = hello.worker_id
        known = hello.journal_id == self.journal_id and worker_id in self.state.workers
        if worker_id is None or not known:
            self._replace_worker_at(hello.address, now)
            worker_id = self._new_id()
            self._commit(
                s.WorkerAdded(worker_id, hello.address, hello.transfers, hello.tags, hello.versions)
            )
        self._attach(peer, worker_id, self._config.worker_timeout_ms, now)
        heartbeat_ms = self._heartbeat_ms(self._config.worker_timeout_ms)
        self._send(worker_id, m.WorkerWelcome(protocol, worker_id, self.journal_id, heartbeat_ms))
        if known:
            self._resume_worker(worker_id, hello.tasks)
        for iteration in list(self.state.iterations.values()):
            self._advance(iteration)

    def _replace_worker_at(self, address: str, now: float) -> None:
        """Two workers cannot serve one address: the older one is dead, whatever its lease says."""
        for worker_id, worker in list(self.state.workers.items()):
            if worker.added.address == address:
                self._lose_worker(worker_id, "another process took its address", now)

    def _resume_worker(self, worker_id: int, reported: list[int]) -> None:
        """What was said on the broken session may be lost: compare, and say it again.

        Splits it had not begun are taken back; it asks again for what it needs.
        """
        tasks = self.state.workers[worker_id].tasks
        for task in tasks.values():
            if task.running:
                self._commit(s.SplitsReturned(task.task_id))
        self._desk.forget(set(tasks))
        for task_id in set(reported) - set(tasks):
            self._send(worker_id, m.TaskStop(task_id))
        for task_id, task in tasks.items():
            if task_id not in reported and task.running:
                self._send(worker_id, self._start_of(task))
        for iteration_id, lister in self._listing.items():
            if lister == worker_id:
                self._send(worker_id, self._list_request(self.state.iterations[iteration_id]))

    def _client_hello(self, peer: int, hello: m.ClientHello, now: float) -> None:
        protocol = _negotiate(hello.protocol_min, hello.protocol_max)
        warning = ""
        if hello.client_id is None:
            iteration, warning = self._open_iteration(hello)
            client_id = self._new_id()
            self._commit(s.ClientAdded(client_id, iteration.iteration_id, hello.process))
            self._idle_since.pop(iteration.iteration_id, None)
        elif hello.journal_id != self.journal_id:
            raise UnavailableError(
                "the dispatcher was restarted without its journal and has forgotten this job; "
                "run it with fault_tolerant_mode=True and a work_dir to survive restarts"
            )
        elif hello.client_id not in self.state.clients:
            raise NotFoundError(
                f"Unknown iteration client id {hello.client_id}: it was not heard of for "
                f"{self._config.client_timeout_ms / 1000:g} s and was released"
            )
        else:
            client_id = hello.client_id
            iteration = self.state.clients[client_id].iteration
        self._attach(peer, client_id, self._config.client_timeout_ms, now)
        self._send(
            client_id,
            m.ClientWelcome(
                protocol,
                client_id,
                iteration.iteration_id,
                self.journal_id,
                self._heartbeat_ms(self._config.client_timeout_ms),
                warning,
            ),
        )
        self._tell_client(self.state.clients[client_id], list(iteration.tasks.values()))
        self._advance(iteration)

    def _attach(self, peer: int, holder: int, timeout_ms: int, now: float) -> None:
        old = self._peers.get(holder)
        if old is not None and old != peer:
            del self._holders[old]
            self._do(Hangup(old))
        self._holders[peer] = holder
        self._peers[holder] = peer
        self._leases.grant(holder, timeout_ms / 1000, now)

    @staticmethod
    def _heartbeat_ms(timeout_ms: int) -> int:
        return max(1, min(timeout_ms // 10, 5000))

    def _refuse(self, peer: int, error: StokerError) -> None:
        self._do(Send(peer, m.Refused(to_record(error))))
        self._do(Hangup(peer))

    # ── jobs and iterations ───────────────────────────────────────────────────────────────────────
    def _open_iteration(self, hello: m.ClientHello) -> tuple[s.Iteration, str]:
        dataset = find_dataset(self.state, hello.dataset_id)
        jobs.check_local(self.state, hello)
        job = self.state.jobs.get(hello.job)
        warning = ""
        if job is None:
            if hello.parameters.processing_mode == jobs.DYNAMIC:
                jobs.check_splittable(dataset)
            jobs.check_runnable(self.state, dataset)
            self._commit(s.JobAdded(hello.job, hello.named, hello.dataset_id, hello.parameters))
            job = self.state.jobs[hello.job]
        else:
            warning = jobs.check_agreement(self.state, job, hello)
        iteration = job.iterations.get(hello.repetition)
        if iteration is None:
            seed = self._rng.getrandbits(63)
            record = s.IterationAdded(self._new_id(), hello.job, hello.repetition, seed)
            self._commit(record)
            iteration = self.state.iterations[record.iteration_id]
        if iteration.error is not None:
            raise from_record(iteration.error)
        return iteration, warning

    def _advance(self, iteration: s.Iteration) -> None:
        """Takes the next steps an iteration can take now: know its splits, run on more workers."""
        if iteration.finished or iteration.error is not None or not iteration.clients:
            return
        if iteration.sources is None and not self._learn_splits(iteration):
            return
        dataset = self._dataset(iteration)
        parameters = iteration.job.added.parameters
        has_task = {task.worker.worker_id for task in iteration.tasks.values()}
        for worker in list(self.state.workers.values()):
            if (
                worker.added.worker_id not in has_task
                and jobs.can_run(dataset, worker.added)
                and any(
                    jobs.sees(client.process, parameters.target_workers, worker.added)
                    for client in iteration.clients.values()
                )
            ):
                self._add_task(iteration, worker)

    def _learn_splits(self, iteration: s.Iteration) -> bool:
        """Cuts index sources; asks a worker to list the others. Returns whether all are known."""
        sources = []
        if iteration.job.added.parameters.processing_mode == jobs.DYNAMIC:
            sources = self._dataset(iteration).sources
        listed = [x.number for x in sources if isinstance(x.splits, ListedSplits)]
        if not listed:
            self._know_splits(iteration, {})
            return True
        if iteration.iteration_id not in self._listing:
            dataset = self._dataset(iteration)
            for worker_id, worker in self.state.workers.items():
                if jobs.can_run(dataset, worker.added):
                    self._listing[iteration.iteration_id] = worker_id
                    self._send(worker_id, self._list_request(iteration))
                    break
        return False

    def _list_request(self, iteration: s.Iteration) -> m.ListSplits:
        dataset = self._dataset(iteration)
        return m.ListSplits(
            iteration.iteration_id,
            iteration.job.added.dataset_id,
            iteration.seed,
            iteration.repetition,
            [x.number for x in dataset.sources if isinstance(x.splits, ListedSplits)],
        )

    def _splits_listed(self, worker_id: int, message: m.SplitsListed) -> None:
        iteration = self.state.iterations.get(message.iteration_id)
        if iteration is None or self._listing.get(message.iteration_id) != worker_id:
            return
        del self._listing[message.iteration_id]
        if message.error is not None:
            self._fail_iteration(iteration, message.error)
            return
        self._know_splits(iteration, message.splits)
        self._advance(iteration)

    def _know_splits(self, iteration: s.Iteration, listed: dict[int, list[object]]) -> None:
        sources = []
        if iteration.job.added.parameters.processing_mode == jobs.DYNAMIC:
            for source in self._dataset(iteration).sources:
                if isinstance(source.splits, IndexSplits):
                    count = source.splits.count
                    sources.append(m.SplitSource(source.number, split_total(count), count))
                else:
                    sources.append(m.SplitSource(source.number, len(listed[source.number])))
        self._commit(s.SplitsKnown(iteration.iteration_id, sources, listed))

    def _fail_iteration(self, iteration: s.Iteration, error: ErrorRecord) -> None:
        self._commit(s.IterationFailed(iteration.iteration_id, error))
        for client_id in list(iteration.clients):
            self._send(client_id, m.Refused(error))

    def _dataset(self, iteration: s.Iteration) -> s.DatasetAdded:
        return self.state.datasets[iteration.job.added.dataset_id]

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────
    def _add_task(self, iteration: s.Iteration, worker: s.Worker) -> None:
        seed = self._rng.getrandbits(63)
        worker_id = worker.added.worker_id
        record = s.TaskAdded(self._new_id(), iteration.iteration_id, worker_id, seed)
        self._commit(record)
        task = self.state.tasks[record.task_id]
        self._send(worker_id, self._start_of(task))
        self._tell_clients(iteration, [task])

    def _start_of(self, task: s.Task) -> m.TaskStart:
        iteration = task.iteration
        dynamic = iteration.job.added.parameters.processing_mode == jobs.DYNAMIC
        assert iteration.sources is not None
        return m.TaskStart(
            task.task_id,
            iteration.iteration_id,
            iteration.job.added.dataset_id,
            task.seed,
            iteration.repetition,
            list(iteration.sources.values()) if dynamic else None,
        )

    def _split_request(self, worker_id: int, request: m.SplitRequest) -> None:
        task = self.state.workers[worker_id].tasks.get(request.task_id)
        if task is not None and task.running:
            self._desk.request(task, request)

    def _send_to_task(self, task: s.Task, grant: m.SplitGrant) -> None:
        self._send(task.worker.worker_id, grant)

    def _task_exhausted(self, worker_id: int, task_id: int, now: float) -> None:
        task = self.state.workers[worker_id].tasks.get(task_id)
        if task is not None and task.running:
            self._commit(s.TaskEnded(task_id))
            self._after_task(task.iteration, [])

    def _after_task(self, iteration: s.Iteration, changed: list[s.Task]) -> None:
        self._desk.settle(iteration)
        self._tell_clients(iteration, changed)

    def _lose_worker(self, worker_id: int, why: str, now: float) -> None:
        tasks = list(self.state.workers[worker_id].tasks.values())
        self._commit(s.WorkerLost(worker_id, why))
        self._leases.drop(worker_id)
        peer = self._peers.pop(worker_id, None)
        if peer is not None:
            del self._holders[peer]
            self._do(Hangup(peer))
        for iteration_id in [i for i, lister in self._listing.items() if lister == worker_id]:
            del self._listing[iteration_id]
            self._advance(self.state.iterations[iteration_id])
        for task in tasks:
            self._after_task(task.iteration, [task])

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def _tell_clients(self, iteration: s.Iteration, changed: list[s.Task]) -> None:
        for client in list(iteration.clients.values()):
            self._tell_client(client, changed)

    def _tell_client(self, client: s.Client, changed: list[s.Task]) -> None:
        iteration = client.iteration
        parameters = iteration.job.added.parameters
        mine = [
            task
            for task in changed
            if jobs.sees(client.process, parameters.target_workers, task.worker)
        ]
        added = [_info(task) for task in mine if not task.lost]
        lost = [_loss(task) for task in mine if task.lost]
        finished = iteration.finished or (
            parameters.target_workers == "LOCAL" and _local_finished(client)
        )
        if added or lost or finished:
            self._send(client.client_id, m.Tasks(added, lost, finished))

    def _release_client(self, client_id: int, now: float) -> None:
        iteration = self.state.clients[client_id].iteration
        self._commit(s.ClientRemoved(client_id))
        self._leases.drop(client_id)
        peer = self._peers.pop(client_id, None)
        if peer is not None:
            del self._holders[peer]
        for task in iteration.tasks.values():
            if not task.lost:
                self._send(task.worker.worker_id, m.ClientGone(task.task_id, client_id))
        if not iteration.clients:
            self._idle_since[iteration.iteration_id] = now
            if iteration.finished or iteration.error is not None:
                self._stop_tasks(iteration)

    def _stop_tasks(self, iteration: s.Iteration) -> None:
        for task in iteration.tasks.values():
            if not task.lost:
                self._send(task.worker.worker_id, m.TaskStop(task.task_id))

    def _collect(self, now: float) -> None:
        """Removes iterations nobody has read for a while.

        DYNAMIC jobs with a name stay unless configured otherwise, as in tf.data service: asked for
        again they would start afresh. Without a name nobody can ask again.
        """
        timeout = self._config.job_gc_timeout_ms / 1000
        if timeout < 0:
            return
        for iteration_id, since in list(self._idle_since.items()):
            iteration = self.state.iterations[iteration_id]
            job = iteration.job.added
            keep = (
                job.named
                and job.parameters.processing_mode == jobs.DYNAMIC
                and not self._config.gc_dynamic_sharding_jobs
            )
            if now - since >= timeout and not keep:
                self._stop_tasks(iteration)
                self._desk.forget(set(iteration.tasks))
                self._listing.pop(iteration_id, None)
                del self._idle_since[iteration_id]
                self._commit(s.IterationRemoved(iteration_id))

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────
    def _answer(self, request: m.Request, now: float) -> m.Reply:
        if isinstance(request, m.RegisterDataset):
            dataset_id = known_id(self.state, request)
            if not dataset_id and request.tree:
                record = new_dataset(request)
                self._commit(record)
                dataset_id = record.dataset_id
            return m.DatasetRegistered(dataset_id)
        if isinstance(request, m.GetDataset):
            dataset = find_dataset(self.state, request.dataset_id)
            tree = dataset.tree if request.with_tree else b""
            return m.DatasetReply(tree, dataset.spec, dataset.options, dataset.compression)
        if isinstance(request, m.GetCluster):
            return m.ClusterReply([worker.added.address for worker in self.state.workers.values()])
        by_address = {w.added.address: worker_id for worker_id, w in self.state.workers.items()}
        if isinstance(request, m.KeepAlive):
            for address in request.workers:
                self._leases.renew(by_address.get(address, -1), now)
        elif request.worker in by_address:
            self._lose_worker(by_address[request.worker], request.how, now)
        return m.Done()

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _commit(self, record: s.Record) -> None:
        self.state.apply(record)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _send(self, holder: int, message: m.FromDispatcher) -> None:
        peer = self._peers.get(holder)
        if peer is not None:
            self._do(Send(peer, message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _negotiate(theirs_min: int, theirs_max: int) -> int:
    version = min(m.PROTOCOL_MAX, theirs_max)
    if version < max(m.PROTOCOL_MIN, theirs_min):
        raise FailedPreconditionError(
            f"no common control protocol: the dispatcher speaks {m.PROTOCOL_MIN} to "
            f"{m.PROTOCOL_MAX}, the other side {theirs_min} to {theirs_max}; install the same "
            "stoker version on both"
        )
    return version


def _info(task: s.Task) -> m.TaskInfo:
    worker = task.worker
    return m.TaskInfo(task.task_id, worker.address, worker.transfers, worker.tags)


def _loss(task: s.Task) -> m.TaskLost:
    begun = task.iteration.splits_begun_by(task.task_id)
    return m.TaskLost(task.task_id, task.worker.address, task.lost, begun)


def _local_finished(client: s.Client) -> bool:
    tasks = [
        task
        for task in client.iteration.tasks.values()
        if jobs.sees(client.process, "LOCAL", task.worker)
    ]
    return any(task.exhausted for task in tasks) and not any(task.running for task in tasks)
