"""Tasks of one iteration: started on workers, and assigned to the clients that read them.

A client reads at most `TASKS_PER_CLIENT` tasks at a time: each costs it a connection. Up to that
number, every client reads all tasks. Where there are more workers, tasks are started as clients can
read them; every task has a reader, and several where clients have room. A client without room is
asked to leave a task that others read too, if another task has no reader or a worker waits.

A *private* worker is read by the clients of its own process only. They read all its tasks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.entities.registered import WorkerInfo
from stoker.service.dispatcher.iterations.task_updates import task_update, waiting_warning
from stoker.service.dispatcher.modes.mode import NO_LOCAL_CLIENT
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.sessions.sessions import SLICE, Sessions
from stoker.service.dispatcher.splits.split_assigner import SplitAssigner
from stoker.service.dispatcher.state import records as r

# Each task that a client reads is a connection. (docs/decisions/058)
TASKS_PER_CLIENT = 128
"""Tasks that a client reads at a time. Flow control keeps bytes free for as many workers."""


WAITING_SECONDS = 10.0
"""Time after which workers that wait are reported: clients of one job start at about one time."""


class Readers(NamedTuple):
    """The clients of a task before it was over, and their reader ids."""

    reading: dict[int, int]
    leaving: dict[int, int]


class Assignment:
    """Start the tasks of an iteration and assign them.

    Apart from `_considered` and what depends on it, all attributes follow from the state: see
    `resume`.

    Args:
        iteration: the iteration.
        ledger: the state.
        sessions: the sessions of workers and clients.
        splits: drops the requests of tasks that are stopped.
        changed: called after a change of the iteration that clients must know, with the tasks that
            were lost by it.
        tasks_per_client: the most tasks that a client reads at a time.
    """

    def __init__(
        self,
        iteration: e.Iteration,
        ledger: Ledger,
        sessions: Sessions,
        splits: SplitAssigner,
        changed: Callable[[e.Iteration, list[e.TaskEntry]], None],
        tasks_per_client: int,
    ) -> None:
        self._iteration = iteration
        self._mode = mode_of(iteration.parameters)
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._splits = splits
        self._changed = changed
        self._most = tasks_per_client
        # Every worker has a task, waits, or never needs one.
        self._considered = False
        self._searches = 0
        self._searching = False
        # Workers that get a task when a client can read it, the one that waits longest first.
        self._waiting: dict[int, None] = {}
        self._waiting_since: float | None = None
        self._warned = False
        # Open tasks that any client can read, the next to be shared first. Some may be over.
        self._open: deque[int] = deque()
        # Clients that can read more tasks, the next to get one first.
        self._roomy: dict[int, None] = {}
        self._processes: dict[str, dict[int, None]] = {}
        # Requests to leave a task that have no answer.
        self._leaving = 0
        self._unread_known = False

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def resume(self) -> None:
        """Continue the iteration of an earlier dispatcher. Workers that wait are found by `start`.

        Its last slices of work may be undone.
        """
        for task in self._iteration.tasks.values():
            self._leaving += len(task.leaving)
            if not task.over and not self._is_private(task.worker):
                self._open.appendleft(task.task_id)
        for client in self._iteration.clients.values():
            self._processes.setdefault(client.process, {})[client.client_id] = None
            self._note_room(client)
        # The earlier dispatcher may have ended between two slices of work.
        self._sessions.in_slices(self._refill(list(self._roomy)))

    def client_joined(self, client: e.ClientEntry) -> None:
        """Assign tasks to a new client.

        The caller notifies it, and calls `note_waiting` afterwards.
        """
        if self._iteration.stopped:
            return
        self._processes.setdefault(client.process, {})[client.client_id] = None
        # Tasks for a process were kept for the next client of the job, which may be in another
        # process.
        if len(self._iteration.clients) == 1:
            self._drop_unreachable(self._iteration.unread.values())
        # Only clients of its process read a private worker, so that no limit applies to its tasks.
        for worker in self._state.local_workers.get(client.process, {}).values():
            if self._is_private(worker.added):
                self._read_private(client, worker)
        self._fill(client)

    def start(self) -> None:
        """Start tasks on all workers that need one and that clients can read."""
        if not self._considered:
            self._considered = self._searching = True
            self._searches += 1
            self._waiting.clear()
            self._sessions.in_slices(self._search(list(self._state.workers.values())))

    def offer(self, worker: e.WorkerEntry) -> None:
        """Start a task on a worker that has registered, if the iteration needs it."""
        # The next client starts a search, which then finds this worker.
        if self._is_idle:
            self._considered = False
            return
        task = self._offer(worker)
        if task is not None:
            self._notify_readers([task])
            # Each client needs a task where each must get all that it reads from workers.
            idle = [x for x in self._roomy if not self._iteration.clients[x].tasks]
            self._sessions.in_slices(self._refill(idle))
        elif self._waiting:
            self._make_room()

    def worker_lost(self, worker_id: int) -> None:
        """Handle the loss of a worker that may wait for a task."""
        self._waiting.pop(worker_id, None)
        # A search that is not complete may find other workers that wait.
        if not self._searching:
            self.note_waiting()

    @staticmethod
    def readers_of(task: e.TaskEntry) -> Readers:
        """Return the clients of a task; call it before the task is over."""
        return Readers(dict(task.readers), dict(task.leaving))

    def task_over(self, task: e.TaskEntry, readers: Readers) -> None:
        """Assign other tasks to the clients of a task that is over."""
        iteration = self._iteration
        if iteration.stopped:
            return
        # The client needs the connection for its next task.
        if not task.lost and self._mode.sharing.is_limited(iteration, self._most):
            self._sessions.send_all(
                (client_id, m.Tasks(leave={task.task_id: reader_id}, shared=iteration.shared))
                for client_id, reader_id in readers.reading.items()
            )
        self._leaving -= len(readers.leaving)
        # Removed together: to find each task that is over would take the length of the queue.
        if len(self._open) > 2 * (iteration.counts.open + SLICE):
            self._open = deque(x for x in self._open if not self._state.tasks[x].over)
        self._sessions.in_slices(self._refill([*readers.reading, *readers.leaving]))

    def task_left(self, client: e.ClientEntry, message: m.TaskLeft) -> None:
        """Handle a client that has left a task as it was asked."""
        task = client.tasks.get(message.task_id)
        if task is None or task.leaving.get(client.client_id) != message.reader_id:
            return  # the task is over, or the message was sent again
        self._ledger.commit(r.ReaderRemoved(message.task_id, client.client_id, message.consumed))
        # The client sends `GiveBack` too, but its data connection may be broken.
        released = m.ClientReleased(message.task_id, message.reader_id, message.consumed)
        self._sessions.send(task.worker.worker_id, released)
        self._leaving -= 1
        self._sessions.in_slices(self._refill([client.client_id]))

    def remove_client(
        self,
        client: e.ClientEntry,
        close: m.ClientClose,
    ) -> None:
        """Remove a client, which has closed so; assign its tasks to others."""
        iteration, tasks = self._iteration, list(client.tasks.values())
        self._leaving -= sum(client.client_id in task.leaving for task in tasks)
        self._roomy.pop(client.client_id, None)
        own = self._processes.get(client.process, {})
        own.pop(client.client_id, None)
        if not own:
            self._processes.pop(client.process, None)
        self._ledger.commit(r.ClientRemoved(client.client_id, close.consumed, close.position))
        for task in tasks:
            if task.task_id in iteration.unread and iteration.sources:
                # It may get no reader before the others have ended, for which all must be begun.
                self._splits.give_back(task)
        if iteration.clients or self._mode.frees_local_tasks(iteration.parameters):
            self._drop_unreachable(tasks)
        if iteration.unread or self._waiting:
            self._splits.settle(iteration)
            roomy = takewhile(lambda _: iteration.unread or self._waiting, list(self._roomy))
            self._sessions.in_slices(self._refill(roomy))

    def drop(self, task: e.TaskEntry, reason: str) -> None:
        """Stop a task; what it has computed is lost, splits that it has not begun are kept."""
        self._considered = False  # its worker may get another task
        self._sessions.send(task.worker.worker_id, m.TaskStop(task.task_id))
        self._ledger.commit(r.TaskDropped(task.task_id, reason))
        self._splits.forget([task])

    def warn(self, now: float) -> None:
        """Warn once of workers that wait for long, unless their turn comes when others end."""
        if self._is_idle or not self._waiting:
            self._waiting_since = None
            return
        if self._waiting_since is None:
            self._waiting_since = now
        if self._warned or now - self._waiting_since < WAITING_SECONDS:
            return
        self._warned = True
        dataset = self._state.datasets[self._iteration.job.dataset_id]
        if self._mode.may_never_start(dataset):
            clients = list(self._iteration.clients.values())
            waiting, most = len(self._waiting), self._most
            self._sessions.send_all(
                (client.client_id, waiting_warning(client, waiting, most)) for client in clients
            )

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def _search(self, workers: list[e.WorkerEntry]) -> Iterator[int]:
        """Start tasks on workers, or let them wait; one step for each worker and reader."""
        search = self._searches
        for first in range(0, len(workers), SLICE):
            added = []
            for worker in workers[first : first + SLICE]:
                # A later search has replaced this search.
                if self._searches != search:
                    return
                if self._is_idle:
                    self._considered = self._searching = False
                    return
                # The worker may have been lost since the last slice.
                if worker.added.worker_id in self._state.workers:
                    task = self._offer(worker)
                    if task is not None:
                        added.append(task)
                        yield len(task.readers)
                yield 1
            self._notify_readers(added)
        self._searching = False
        self.note_waiting()
        yield from self._refill(list(self._roomy))

    def _offer(self, worker: e.WorkerEntry) -> e.TaskEntry | None:
        """Start a task on a worker if it needs one and a client can read it, else let it wait."""
        if not self._needs_task(worker):
            return None
        if self._is_private(worker.added):
            own = list(self._processes.get(worker.added.process, ()))
            return self._add(worker, own) if own else None
        # With few workers every client reads every task; with more, readers are divided among the
        # tasks.
        share = self._share if len(self._state.workers) > self._most else None
        readers = list(islice(self._roomy, share))
        if not readers or not self._may_add:
            self._waiting[worker.added.worker_id] = None
            self.note_waiting()
            return None
        task = self._add(worker, readers)
        self._open.appendleft(task.task_id)
        for client_id in readers:
            del self._roomy[client_id]
            self._note_room(self._iteration.clients[client_id])
        return task

    def _add(self, worker: e.WorkerEntry, readers: list[int]) -> e.TaskEntry:
        worker_id = worker.added.worker_id
        task_id, seed, key = self._ledger.new_id(), self._seed(), self._ledger.new_key()
        added = r.TaskAdded(
            task_id, self._iteration.iteration_id, worker_id, seed=seed, key=key, readers=readers
        )
        self._ledger.commit(added)
        task = self._state.tasks[task_id]
        self._sessions.send(worker_id, self._mode.task_start(task))
        return task

    def _seed(self) -> int:
        """Return the seed of all tasks, or of a task that died of an unknown call, or a new one."""
        if (common := self._mode.common_seed(self._iteration)) is not None:
            return common
        poison, repeated = self._iteration.poison, None
        # With the same seed, elements have the same positions, so that deaths can be compared.
        if poison.seeds:
            running = {task.seed for task in self._iteration.by_worker.values()}
            repeated = poison.seed_to_repeat(running)
        return self._ledger.new_seed() if repeated is None else repeated

    def note_waiting(self) -> None:
        """Record whether workers wait.

        Clients may be notified that all is computed, so they must know their tasks before.
        """
        if self._iteration.stopped:
            return
        waiting = bool(self._waiting)
        if waiting != self._iteration.counts.workers_wait:
            self._ledger.commit(r.WorkersWait(self._iteration.iteration_id, waiting))
            if self._iteration.computed:
                self._changed(self._iteration, [])

    def _drop_unreachable(self, tasks: Iterable[e.TaskEntry]) -> None:
        """Drop tasks of which clients would wait for elements that none of them can read."""
        for task in list(tasks):
            private = task.task_id in self._iteration.unread and self._is_private(task.worker)
            if private and task.worker.process not in self._processes:
                self.drop(task, NO_LOCAL_CLIENT)
                self._changed(self._iteration, [task])

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def _refill(self, client_ids: Iterable[int]) -> Iterator[int]:
        """Assign tasks to clients that have room, and notify them; one step for each client."""
        iteration = self._iteration
        for client_id in client_ids:
            client = iteration.clients.get(client_id)
            if client is None:
                continue
            # In one step: an update in between would tell the client that it has read all.
            added = self._fill(client)
            if added:
                self._sessions.send(client_id, task_update(client, added))
            self.note_waiting()
            yield 1 + len(added)
        self._make_room()
        # A client ends when all is computed and no task is without a reader: both are in an update.
        if iteration.computed and bool(iteration.unread) != self._unread_known:
            self._unread_known = bool(iteration.unread)
            self._changed(iteration, [])

    def _fill(self, client: e.ClientEntry) -> list[e.TaskEntry]:
        """Assign tasks to a client until it has no room; return them."""
        added = []
        while len(client.tasks) < self._most and not self._iteration.stopped:
            task = (
                self._next_unread(client) or self._next_waiting(client) or self._next_shared(client)
            )
            if task is None:
                break
            added.append(task)
        self._note_room(client)
        return added

    def _next_unread(self, client: e.ClientEntry) -> e.TaskEntry | None:
        """Assign the next task without a reader; one that the client leaves is for others."""
        for task in self._iteration.unread.values():
            if client.client_id not in task.leaving and not self._is_private(task.worker):
                return self._assign(task, client)
        return None

    def _next_waiting(self, client: e.ClientEntry) -> e.TaskEntry | None:
        """Start a task on the next worker that waits, and assign it."""
        task = None
        accepts = self._mode.accepts_tasks(self._iteration) and self._may_add
        while self._waiting and task is None and accepts:
            worker = self._state.workers[next(iter(self._waiting))]
            del self._waiting[worker.added.worker_id]
            if self._needs_task(worker):
                task = self._add(worker, self._mode.sharing.readers_for(client))
                self._open.appendleft(task.task_id)
                others = [x for x in task.readers if x != client.client_id]
                self._notify(others, [task])
        return task

    @property
    def _may_add(self) -> bool:
        """True if clients can read another task."""
        return self._mode.sharing.may_add(self._iteration, self._most)

    def _next_shared(self, client: e.ClientEntry) -> e.TaskEntry | None:
        """Assign the next open task that the client does not read."""
        # While workers are searched, most of them may still need a reader.
        many = self._searching and len(self._state.workers) > self._most
        if many or len(client.tasks) >= self._iteration.counts.open:
            return None
        for _ in range(len(self._open)):
            task = self._state.tasks[self._open[0]]
            if task.over:
                self._open.popleft()
                continue
            # In turns, so that each task gets about the same number of readers.
            self._open.rotate(-1)
            if task.task_id not in client.tasks:
                return self._assign(task, client)
        return None

    def _assign(self, task: e.TaskEntry, client: e.ClientEntry) -> e.TaskEntry:
        left = task.task_id in client.left_tasks
        reader_id = self._ledger.new_id() if left else client.client_id
        was_unread = task.task_id in self._iteration.unread
        self._ledger.commit(r.ReaderAdded(task.task_id, client.client_id, reader_id))
        if was_unread:
            self._splits.settle(self._iteration)  # it got no splits
        return task

    def _read_private(self, client: e.ClientEntry, worker: e.WorkerEntry) -> None:
        """Let a new client read a worker of its process."""
        task = self._iteration.by_worker.get(worker.added.worker_id)
        if task is not None and not task.over:
            self._assign(task, client)
        elif self._iteration.sources is not None and self._needs_task(worker):
            self._add(worker, [client.client_id])

    def _note_room(self, client: e.ClientEntry) -> None:
        if len(client.tasks) < self._most:
            self._roomy[client.client_id] = None
        else:
            self._roomy.pop(client.client_id, None)

    # ── room ──────────────────────────────────────────────────────────────────────────────────────
    def _make_room(self) -> None:
        """Ask clients to leave tasks that others read too, for tasks and workers that need one."""
        if self._wanted > 0:
            self._sessions.in_slices(self._revoke())

    def _revoke(self) -> Iterator[int]:
        """Ask clients to leave tasks with the most readers; one step for each request."""
        # A copy: clients answer, and tasks end, between two slices.
        for task_id in list(self._open):
            task = self._state.tasks.get(task_id)
            while task is not None and len(task.readers) > self._share:
                if self._wanted <= 0:
                    return
                client = self._state.clients[next(iter(task.readers))]
                self._ledger.commit(r.ReaderRevoked(task_id, client.client_id))
                self._leaving += 1
                leave = {task_id: task.leaving[client.client_id]}
                self._sessions.send(client.client_id, task_update(client, [], leave))
                yield 1

    @property
    def _wanted(self) -> int:
        """The number of places that clients are to be asked for."""
        iteration = self._iteration
        # To ask clients to leave helps only if some task has two readers.
        spare = iteration.readings > iteration.counts.open - len(iteration.unread)
        if self._roomy or iteration.stopped or not spare:
            return 0
        waiting = len(self._waiting) if self._mode.accepts_tasks(iteration) else 0
        return len(iteration.unread) + self._share * waiting - self._leaving

    @property
    def _share(self) -> int:
        """The number of readers that each task can have if all workers have one."""
        # Before the end of a search `_open` does not have all tasks.
        if self._searching:
            tasks = len(self._state.workers)
        else:
            tasks = len(self._open) + len(self._waiting)
        return self._mode.sharing.share(self._iteration, tasks, self._most)

    @property
    def _is_idle(self) -> bool:
        """True if no tasks are started now."""
        iteration = self._iteration
        return iteration.stopped or not iteration.clients or not self._mode.accepts_tasks(iteration)

    def _needs_task(self, worker: e.WorkerEntry) -> bool:
        dataset = self._state.datasets[self._iteration.job.dataset_id]
        return self._mode.needs_task(self._iteration, dataset, worker)

    def _is_private(self, worker: WorkerInfo) -> bool:
        return self._mode.is_private(self._iteration.parameters, worker)

    def _notify_readers(self, tasks: Iterable[e.TaskEntry]) -> None:
        by_client: dict[int, list[e.TaskEntry]] = {}
        for task in tasks:
            for client_id in task.readers:
                by_client.setdefault(client_id, []).append(task)
        clients = self._iteration.clients
        self._sessions.send_all(
            (client_id, task_update(clients[client_id], mine))
            for client_id, mine in by_client.items()
            if client_id in clients
        )

    def _notify(self, client_ids: Iterable[int], tasks: list[e.TaskEntry]) -> None:
        for client_id in client_ids:
            client = self._iteration.clients[client_id]
            self._sessions.send(client_id, task_update(client, tasks))
