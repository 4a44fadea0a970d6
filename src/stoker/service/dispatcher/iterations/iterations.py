"""Iterations: run as tasks on workers for their clients, ended and collected."""

from collections.abc import Callable, Collection

from stoker.errors import ErrorRecord, StokerError, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.entities.registered import WorkerInfo
from stoker.service.dispatcher.iterations import jobs
from stoker.service.dispatcher.iterations.assignment import Assignment
from stoker.service.dispatcher.iterations.dataset_collector import DatasetCollector
from stoker.service.dispatcher.iterations.task_updates import task_update, whole_update
from stoker.service.dispatcher.modes.mode import NO_COORDINATOR, Coordinator
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.dispatcher.splits.split_assigner import SplitAssigner
from stoker.service.dispatcher.splits.split_listing import SplitListing
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.jobs import REMEMBERED_CANCELLED
from stoker.service.plurals import plural


class Iterations:
    """Run, end and collect iterations; `IterationOpening` creates them.

    Args:
        config: how long an iteration is kept without clients.
        ledger: the state.
        sessions: the sessions of workers and clients.
        assigner: assigns splits to tasks.
        listing: finds the splits of sources.
        collector: removes datasets that no job needs.
        tasks_per_client: the most tasks that a client reads at a time.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        ledger: Ledger,
        sessions: Sessions,
        assigner: SplitAssigner,
        listing: SplitListing,
        collector: DatasetCollector,
        tasks_per_client: int,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._assigner = assigner
        self._listing = listing
        self._collector = collector
        self._tasks_per_client = tasks_per_client
        self._assignments: dict[int, Assignment] = {}
        self._coordinators: dict[int, Coordinator] = {}
        self._idle_since: dict[int, float] = {}
        self._replaced: dict[bytes, StokerError] = {}
        self._ended_at: dict[int, float] = {}

    def resume(self, now: float) -> None:
        """Continue the iterations of an earlier dispatcher; idle times start anew."""
        for iteration in list(self._state.iterations.values()):
            # A finished iteration needs no places: nobody reads its shards.
            if iteration.error is None and not iteration.finished:
                self._fail_if_raised(iteration, mode_of(iteration.parameters).check_resumed)
            self._listing.resume(iteration)
            if not iteration.stopped:
                self.assignment(iteration).resume()
                self.coordinator(iteration)
            if not iteration.clients:
                self._idle_since[iteration.iteration_id] = now
            self._note_end(iteration)  # its end was earlier, at an unknown time
        for job in list(self._state.jobs.values()):
            self._collector.maybe_idle(job.dataset_id)

    def opened(self, iteration: e.Iteration) -> None:
        """Keep an iteration, its job and its dataset's tree: a client begins to read it."""
        self._idle_since.pop(iteration.iteration_id, None)
        self._collector.used(iteration.job.dataset_id)

    def idle_seconds(self, job: e.JobEntry, now: float) -> float:
        """Return the time since the last client of a job has left; 0 if it has clients."""
        since = [self._idle_since.get(x.iteration_id, now) for x in job.iterations.values()]
        return 0.0 if job.has_clients else now - max(since, default=now)

    def ended_before(self, iteration: e.Iteration, at: float) -> bool:
        """Return whether an iteration is known to have ended by `at`, in seconds."""
        ended_at = self._ended_at.get(iteration.iteration_id)
        return ended_at is not None and ended_at <= at

    def _note_end(self, iteration: e.Iteration) -> None:
        if iteration.finished:
            self._ended_at.setdefault(iteration.iteration_id, self._ledger.events.now)

    def client_joined(self, client: e.ClientEntry) -> None:
        """Assign tasks to a new client and notify it."""
        assignment = self.assignment(client.iteration)
        assignment.client_joined(client)
        self.client_resumed(client)
        # After the message with the tasks: without them the client would end when all is computed.
        assignment.note_waiting()

    def client_resumed(self, client: e.ClientEntry) -> None:
        """Notify a client of all its tasks: what an older session was sent may be lost."""
        update = whole_update(client)
        if update is not None:
            self._sessions.send(client.client_id, update)
        self._advance(client.iteration)
        self.coordinator(client.iteration).client_resumed(client)

    def advance(self) -> None:
        """Let modes act on what has happened."""
        for coordinator in self._coordinators.values():
            coordinator.advance()

    def coordinator(self, iteration: e.Iteration) -> Coordinator:
        """Return what the clients of an iteration agree on."""
        coordinator = self._coordinators.get(iteration.iteration_id)
        if coordinator is None:
            iteration_id = iteration.iteration_id
            coordinator = mode_of(iteration.parameters).sharing.coordinator(
                iteration,
                self._ledger,
                self._sessions,
                agree=lambda x: self._ledger.commit(r.AgreementChanged(iteration_id, x)),
                restart=self._replace,
            )
            # `advance` runs after every message, so it has only those with something to do.
            if coordinator is not NO_COORDINATOR:
                self._coordinators[iteration_id] = coordinator
        return coordinator

    def _replace(self, iteration: e.Iteration, tasks: list[e.TaskEntry]) -> None:
        """Stop tasks, and start others in their place."""
        assignment = self.assignment(iteration)
        for task in tasks:
            readers = Assignment.readers_of(task)
            assignment.drop(task, "all consumers of its task were lost, so that it begins anew")
            assignment.task_over(task, readers)
        self._after(iteration, tasks)
        self._advance(iteration)

    def worker_added(self, worker: e.WorkerEntry) -> None:
        """Start tasks of all iterations on a worker that has registered."""
        for iteration in list(self._state.iterations.values()):
            if iteration.sources is None:
                self._advance(iteration)  # if this worker lists splits, others wait for them too
            elif self._can_run(iteration):
                self.assignment(iteration).offer(worker)
        self._notify_waiting(worker.added)

    def _notify_waiting(self, worker: WorkerInfo) -> None:
        """Notify the clients that wait for a certain worker, which has come or was lost."""
        for iteration in self._state.iterations.values():
            waits = mode_of(iteration.parameters).awaits(iteration, worker)
            if waits and iteration.error is None:
                self._notify_all(iteration, [])

    def _advance(self, iteration: e.Iteration) -> None:
        """List the splits of an iteration if needed, then start its tasks."""
        if iteration.clients and self._can_run(iteration) and self._listing.learn(iteration):
            self.assignment(iteration).start()

    def _can_run(self, iteration: e.Iteration) -> bool:
        """Return False if the iteration has failed; let it fail if no worker can run it."""
        if iteration.error is not None:
            return False
        # With tasks it can run somewhere; workers that cannot run it may come and go.
        if iteration.clients and not iteration.tasks:
            dataset = self._state.datasets[iteration.job.dataset_id]
            return not self._fail_if_raised(
                iteration, lambda _: jobs.check_runnable(self._state, dataset)
            )
        return True

    def splits_listed(self, worker_id: int, answer: m.SplitsPage | m.ListingFailed) -> None:
        """Handle a part of a worker's list of the splits of an iteration."""
        complete = self._listing.answered(worker_id, answer)
        if complete is None:
            return
        iteration, error = complete
        if error is not None:
            self._fail(iteration, error)
        elif not self._fail_if_raised(iteration, mode_of(iteration.parameters).check_listed):
            self._advance(iteration)

    def task_requested(self, task: e.TaskEntry, request: m.TaskRequest, *, draining: bool) -> None:
        """Answer the request of a running task for splits or files.

        Raises:
            InvalidArgumentError: if its mode assigns none, or a number is not possible.
        """
        if isinstance(request, m.SplitRequest):
            self._assigner.request(task, request, draining=draining)
        else:
            page = mode_of(task.iteration.parameters).shard_page(task, request)
            self._sessions.send(task.worker.worker_id, page)

    def take_splits_back(self, tasks: Collection[e.TaskEntry]) -> None:
        """Give the splits that tasks of a worker have not begun to others."""
        self._assigner.forget(tasks)
        for task in tasks:
            self._assigner.settle(task.iteration)

    def task_progressed(self, task: e.TaskEntry, progress: m.TaskProgress) -> None:
        """Record the state of a task that its worker has sent."""
        if progress.leaving:
            self.coordinator(task.iteration).leaving(task)
        dropped = progress.dropped > task.dropped
        if dropped:
            self._ledger.commit(r.DropsCounted(task.task_id, progress.dropped))
        ended = progress.exhausted and not task.exhausted
        if ended:
            self._ledger.commit(r.TaskEnded(task.task_id))
        delivered = progress.delivered and not task.delivered
        if delivered:
            readers = Assignment.readers_of(task)
            self._ledger.commit(r.TaskDelivered(task.task_id))
            self.assignment(task.iteration).task_over(task, readers)
        # A task that computes no more asks for no splits.
        if ended or delivered:
            self._assigner.forget([task])
        if dropped or ended or delivered:
            self._after(task.iteration, [task] if dropped else [])

    def task_read(self, client: e.ClientEntry, task_id: int) -> None:
        """Record that a client has received the end of a task."""
        task = client.iteration.tasks.get(task_id)
        if task is not None and not task.read and not client.iteration.stopped:
            self._ledger.commit(r.TaskEndReceived(task_id))
            self._after(client.iteration, [])

    def lose_worker(self, worker_id: int, reason: str, undelivered: dict[int, int]) -> None:
        """Remove a worker and its tasks; `undelivered` as in `WorkerLeave`."""
        worker = self._state.workers[worker_id].added
        tasks = self._state.workers[worker_id].tasks.values()
        lost = [(task, Assignment.readers_of(task)) for task in tasks]
        self._ledger.commit(r.WorkerLost(worker_id, reason, undelivered))
        self._sessions.release(worker_id)
        self._assigner.forget(task for task, _ in lost)
        for iteration in self._listing.lose(worker_id):
            self._advance(iteration)
        for assignment in list(self._assignments.values()):
            assignment.worker_lost(worker_id)
        for task, readers in lost:
            self.assignment(task.iteration).task_over(task, readers)
            self._after(task.iteration, [task])
            if task.exhausted:  # other workers may have no task because all was computed
                self._advance(task.iteration)
        self._notify_waiting(worker)

    # A job without a name stops with its last client: nobody can ask for the rest.
    # (docs/decisions/051)
    def remove_client(self, client: e.ClientEntry, close: m.ClientClose, now: float) -> None:
        """Remove a client, which has closed so; after the last one the iteration may be collected.

        Args:
            client: the client.
            close: its message, or that of a client that was lost.
            now: seconds.
        """
        iteration, index = client.iteration, client.consumer_index
        self.coordinator(iteration).client_removed(client.client_id)
        if not iteration.stopped:
            # The client sends `GiveBack` too, but its data connection may be broken.
            readers = [
                (task, (task.readers | task.leaving)[client.client_id])
                for task in client.tasks.values()
            ]
            self._sessions.send_all(
                (
                    x.worker.worker_id,
                    m.ClientReleased(x.task_id, reader, close.consumed.get(x.task_id), index),
                )
                for x, reader in readers
            )
        self.assignment(iteration).remove_client(client, close)
        if iteration.clients:
            return
        if iteration.error is not None:
            self.remove(iteration)  # the next client that asks starts it again
            return
        self._idle_since[iteration.iteration_id] = now
        # Nobody can ask for the rest of an anonymous job but copies of its dataset.
        anonymous = not iteration.job.added.named
        if iteration.finished or anonymous or mode_of(iteration.parameters).ends_with_clients:
            self._stop(iteration)
        self._collector.maybe_idle(iteration.job.dataset_id)

    def check_replaced(self, key: bytes) -> None:
        """Check that no other client has taken the place of the client with this key.

        Raises:
            StokerError: if one has; the error that the client was to get then.
        """
        if key in self._replaced:
            raise self._replaced[key]

    def replace_client(self, client: e.ClientEntry, error: StokerError, now: float) -> None:
        """Refuse a client whose place another one takes, also if it connects again later."""
        # Two processes that replaced each other in turns would both never read to the end.
        self._replaced[client.key] = error
        if len(self._replaced) > REMEMBERED_CANCELLED:
            del self._replaced[next(iter(self._replaced))]
        self._refuse(client, error, now)

    def _refuse(self, client: e.ClientEntry, error: StokerError, now: float) -> None:
        self.remove_client(client, m.ClientClose(), now)
        self._sessions.send(client.client_id, m.Refused(to_record(error)))
        self._sessions.release(client.client_id)

    # A cancelled job leaves the keys of its last 4,096 clients, so that a client that was away is
    # refused with the reason and does not begin the job anew. (docs/decisions/010)
    def cancel(self, job: e.JobEntry, now: float) -> str:
        """Remove a job and refuse its clients; return a sentence about both."""
        name, iterations = job.added.job, list(job.iterations.values())
        self._ledger.commit(r.JobCancelled(name))
        running = clients = 0
        # Not in slices: an operator cancels rarely, and 4,000 clients take about 100 ms.
        for iteration in iterations:
            running += 0 if iteration.stopped else iteration.counts.open
            clients += len(iteration.clients)
            self._stop(iteration)  # first, so that no other client gets what one has not read
            for client in list(iteration.clients.values()):
                self._refuse(client, jobs.job_cancelled(name), now)
            if iteration.iteration_id in self._state.iterations:
                self.remove(iteration)
        refused = plural(clients, "client is refused", "clients are refused")
        return f"job {name!r} was cancelled; {refused}, {plural(running, 'task ends', 'tasks end')}"

    def forget_dataset(self, dataset_id: str) -> None:
        """Remove a dataset that no job has."""
        self._collector.forget(dataset_id)

    def warn(self, now: float) -> None:
        """Warn of workers that wait because clients cannot read their tasks."""
        for assignment in self._assignments.values():
            assignment.warn(now)

    # DYNAMIC jobs without a name are collected, other than in tf.data service: nobody can request
    # their random name again. (docs/decisions/061)
    def collect(self, now: float) -> None:
        """Remove iterations idle for `job_gc_timeout_ms`; keep the tasks of those to keep."""
        timeout = self._config.job_gc_timeout
        if timeout < 0:
            return
        for iteration_id, since in list(self._idle_since.items()):
            if now - since < timeout:
                continue
            iteration = self._state.iterations[iteration_id]
            if mode_of(iteration.parameters).is_collected(iteration.job, self._config):
                self.remove(iteration)
            else:
                # A named DYNAMIC job stays; its tree is dropped, and a client that asks again sends
                # the tree.
                self._collector.unused(iteration.job.dataset_id)

    def assignment(self, iteration: e.Iteration) -> Assignment:
        """Return the assignment of the tasks of an iteration."""
        assignment = self._assignments.get(iteration.iteration_id)
        if assignment is None:
            assignment = Assignment(
                iteration,
                self._ledger,
                self._sessions,
                splits=self._assigner,
                changed=self._after,
                tasks_per_client=self._tasks_per_client,
            )
            self._assignments[iteration.iteration_id] = assignment
        return assignment

    def _after(self, iteration: e.Iteration, changed: list[e.TaskEntry]) -> None:
        """Assign the splits of a task that has ended, and notify the clients."""
        if iteration.iteration_id not in self._state.iterations:
            return  # work in slices goes on after its job was cancelled
        self._note_end(iteration)
        self._assigner.settle(iteration)
        if changed or iteration.computed:
            self._notify_all(iteration, changed)
        else:
            self._notify_ended(iteration)
        if not iteration.clients:
            if iteration.finished:
                self._stop(iteration)
            self._collector.maybe_idle(iteration.job.dataset_id)

    def _notify_ended(self, iteration: e.Iteration) -> None:
        """Notify the clients of processes whose own workers have ended before those of others."""
        if self._state.local_workers:
            mode = mode_of(iteration.parameters)
            ended = [x for x in iteration.clients.values() if mode.is_computed_for(x)]
            self._sessions.send_all((x.client_id, task_update(x, [])) for x in ended)

    def _notify_all(self, iteration: e.Iteration, changed: list[e.TaskEntry]) -> None:
        clients = list(iteration.clients.values())
        self._sessions.send_all((c.client_id, task_update(c, changed)) for c in clients)

    def _fail_if_raised(self, iteration: e.Iteration, check: Callable[[e.Iteration], None]) -> bool:
        """Let an iteration fail with the error of a check; return whether it does."""
        try:
            check(iteration)
        except StokerError as error:
            self._fail(iteration, to_record(error))
            return True
        return False

    def _fail(self, iteration: e.Iteration, error: ErrorRecord) -> None:
        self._listing.forget(iteration)
        self._ledger.commit(r.IterationFailed(iteration.iteration_id, error))
        for client_id in iteration.clients:
            self._sessions.send(client_id, m.Refused(error))

    def _stop(self, iteration: e.Iteration) -> None:
        """Stop the tasks; no client will get another element."""
        if iteration.stopped:
            return
        self._listing.forget(iteration)
        # A copy: the messages are sent in slices, after the record has removed the tasks.
        tasks = list(iteration.by_worker.items())
        self._sessions.send_all((worker_id, m.TaskStop(x.task_id)) for worker_id, x in tasks)
        self._assigner.forget_iteration(iteration)
        self._ledger.commit(r.TasksStopped(iteration.iteration_id))
        self._note_end(iteration)

    def end(self, iteration: e.Iteration) -> None:
        """Stop an iteration without clients, which another one of its epoch replaces."""
        self._stop(iteration)
        self._assignments.pop(iteration.iteration_id, None)
        self._coordinators.pop(iteration.iteration_id, None)
        self._idle_since.pop(iteration.iteration_id, None)
        self._ended_at.pop(iteration.iteration_id, None)

    def remove(self, iteration: e.Iteration) -> None:
        """Remove an iteration, and its job if it was the last one."""
        self.end(iteration)
        self._ledger.commit(r.IterationRemoved(iteration.iteration_id))
        if not iteration.job.iterations:
            self._collector.job_left(iteration.job.dataset_id)
