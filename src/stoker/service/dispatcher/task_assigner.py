"""Start the tasks of iterations, and assign them to the clients that read them.

A client reads at most `TASKS_PER_CLIENT` tasks at a time: each costs it a connection. Up to that
number, every client reads all tasks. Where there are more workers, tasks are started as clients can
read them; every task has a reader, and several where clients have room. A client without room is
asked to leave a task that others read too, if another task has no reader or a worker waits.

A *private* worker is read by the clients of its own process only. They read all its tasks.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from stoker.service import messages as m
from stoker.service.dispatcher import entities as e
from stoker.service.dispatcher import records as r
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.modes import mode_of
from stoker.service.dispatcher.placement import is_private, process_of
from stoker.service.dispatcher.sessions import SLICE, Sessions
from stoker.service.dispatcher.split_assigner import SplitAssigner
from stoker.service.dispatcher.task_updates import task_update

_log = logging.getLogger("stoker.dispatcher")

TASKS_PER_CLIENT = 128
"""Tasks that a client reads at a time. Flow control keeps bytes free for as many workers."""

SHARED_BY = 4
"""Readers that a task keeps, at most, when clients are asked to leave it: a slow one of them does
not stop the worker, and each costs the worker a connection."""


WAITING_SECONDS = 10.0
"""Time after which workers that wait are reported: clients of one job start at about one time."""


class _Places:
    """Places for readers in one iteration. Volatile: all follows from the state.

    Attributes:
        waiting: workers that get a task when a client can read it. Some may be lost since.
        open: open tasks that any client can read, the next to be shared first.
        roomy: clients that can read more tasks, the next to get one first.
        processes: process → its clients.
        leaving: the number of requests to leave a task that have no answer.
        unread_known: the clients were told that there are tasks without a reader.
        considered: every worker has a task, waits, or never needs one.
        search: the number of the last search for workers.
        searching: it runs.
        warn_at: the time to warn that workers wait; 0 before they do, infinite after the warning.
    """

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.open: deque[int] = deque()
        self.roomy: dict[int, None] = {}
        self.processes: dict[str, dict[int, None]] = {}
        self.leaving = 0
        self.unread_known = False
        self.considered = False
        self.search = 0
        self.searching = False
        self.warn_at = 0.0


class Readers(NamedTuple):
    """The clients of a task before it was over, and their reader ids."""

    reading: dict[int, int]
    leaving: dict[int, int]


class TaskAssigner:
    """Start tasks and assign them.

    Args:
        ledger: the state.
        sessions: the sessions of workers and clients.
        splits: drops the requests of tasks that are stopped.
        changed: called after a change of an iteration that clients must know, with the tasks that
            were lost by it.
        tasks_per_client: the most tasks that a client reads at a time.
    """

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        splits: SplitAssigner,
        changed: Callable[[e.Iteration, list[e.Task]], None],
        tasks_per_client: int,
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._splits = splits
        self._changed = changed
        self._most = tasks_per_client
        self._places: dict[int, _Places] = {}

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def client_joined(self, client: e.Client) -> None:
        """Assign tasks to a new client, which is notified by the caller."""
        iteration = client.iteration
        if iteration.stopped:
            return
        places = self._places_of(iteration)
        places.processes.setdefault(client.process, {})[client.client_id] = None
        for worker in self._state.local_workers.get(client.process, {}).values():
            if self._is_private(iteration, worker.added):
                self._read_private(client, worker)
        if len(iteration.clients) == 1:
            self._drop_unreachable(places, iteration.unread.values())
        for _ in self._fill(iteration, places, client):
            pass

    def start(self, iteration: e.Iteration) -> None:
        """Start tasks on all workers that need one and that clients can read."""
        places = self._places_of(iteration)
        if not places.considered:
            places.considered = places.searching = True
            places.search += 1
            places.waiting.clear()
            workers = list(self._state.workers.values())
            self._sessions.in_slices(self._search(iteration, places, workers))

    def offer(self, iteration: e.Iteration, worker: e.Worker) -> None:
        """Start a task of an iteration on a worker that has registered."""
        places = self._places_of(iteration)
        if _is_idle(iteration):
            places.considered = False
            return
        task = self._offer(iteration, places, worker)
        if task is not None:
            self._notify_readers(iteration, [task])
        elif places.waiting:
            self._make_room(iteration, places)

    @staticmethod
    def readers_of(task: e.Task) -> Readers:
        """Return the clients of a task; call it before the task is over."""
        return Readers(dict(task.readers), dict(task.leaving))

    def task_over(self, task: e.Task, readers: Readers) -> None:
        """Assign other tasks to the clients of a task that is over."""
        iteration = task.iteration
        if iteration.stopped:
            return
        if self._is_limited(iteration) and not task.lost:
            self._sessions.send_all(
                (client_id, m.Tasks(leave={task.task_id: reader_id}, shared=iteration.shared))
                for client_id, reader_id in readers.reading.items()
            )
        places = self._places_of(iteration)
        places.leaving -= len(readers.leaving)
        if len(places.open) > 2 * (iteration.counts.open + SLICE):
            places.open = deque(x for x in places.open if not self._state.tasks[x].over)
        refill = self._refill(iteration, places, [*readers.reading, *readers.leaving])
        self._sessions.in_slices(refill)

    def task_left(self, client: e.Client, message: m.TaskLeft) -> None:
        """Handle a client that has left a task."""
        task = client.tasks.get(message.task_id)
        if task is None or task.leaving.get(client.client_id) != message.reader_id:
            return  # the task is over, or the message was sent again
        self._ledger.commit(r.TaskLeft(message.task_id, client.client_id, message.consumed))
        # The client sends `GiveBack` too, but its data connection may be broken.
        released = m.ClientReleased(message.task_id, message.reader_id, message.consumed)
        self._sessions.send(task.worker.worker_id, released)
        places = self._places_of(client.iteration)
        places.leaving -= 1
        self._sessions.in_slices(self._refill(client.iteration, places, [client.client_id]))

    def remove_client(self, client: e.Client, consumed: dict[int, tuple[int, int]]) -> None:
        """Remove a client; assign its tasks to others.

        Args:
            client: the client.
            consumed: as in `ClientClose`.
        """
        iteration = client.iteration
        places = self._places_of(iteration)
        tasks = list(client.tasks.values())
        places.leaving -= sum(client.client_id in task.leaving for task in tasks)
        places.roomy.pop(client.client_id, None)
        _discard(places.processes, client)
        self._ledger.commit(r.ClientRemoved(client.client_id, consumed))
        for task in tasks:
            if task.task_id in iteration.unread and iteration.sources:
                # It may get no reader before the others have ended, for which all must be begun.
                self._ledger.commit(r.SplitsReturned(task.task_id))
                self._sessions.send(task.worker.worker_id, m.ReturnSplits(task.task_id))
        if iteration.clients:
            self._drop_unreachable(places, tasks)
        if iteration.unread or places.waiting:
            self._splits.settle(iteration)
            needed = takewhile(lambda _: iteration.unread or places.waiting, list(places.roomy))
            self._sessions.in_slices(self._refill(iteration, places, needed))

    def _drop_unreachable(self, places: _Places, tasks: Iterable[e.Task]) -> None:
        """Drop tasks of which clients would wait for elements that none of them can read."""
        for task in list(tasks):
            iteration = task.iteration
            private = self._is_private(iteration, task.worker) and task.task_id in iteration.unread
            if private and process_of(task.worker) not in places.processes:
                self.drop(task, "its elements are for clients of its process, which has none left")
                self._changed(iteration, [task])

    def drop(self, task: e.Task, reason: str) -> None:
        """Stop a task; what it has computed is lost, splits that it has not begun are kept."""
        self._places_of(task.iteration).considered = False  # its worker may get another task
        self._sessions.send(task.worker.worker_id, m.TaskStop(task.task_id))
        self._ledger.commit(r.TaskDropped(task.task_id, reason))
        self._splits.forget({task.task_id})

    def forget(self, iteration: e.Iteration) -> None:
        """Remove an iteration."""
        self._places.pop(iteration.iteration_id, None)

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def _search(
        self, iteration: e.Iteration, places: _Places, workers: list[e.Worker]
    ) -> Iterator[int]:
        """Start tasks on workers, or let them wait; one step for each worker and reader."""
        number = places.search
        for first in range(0, len(workers), SLICE):
            added = []
            for worker in workers[first : first + SLICE]:
                if places.search != number:
                    return
                if _is_idle(iteration):
                    places.considered = places.searching = False
                    return
                if worker.added.worker_id in self._state.workers:
                    task = self._offer(iteration, places, worker)
                    if task is not None:
                        added.append(task)
                        yield len(task.readers)
                yield 1
            self._notify_readers(iteration, added)
        places.searching = False
        self._set_waiting(iteration, places)
        yield from self._refill(iteration, places, list(places.roomy))

    def _offer(self, iteration: e.Iteration, places: _Places, worker: e.Worker) -> e.Task | None:
        """Start a task on a worker if it needs one and a client can read it, else let it wait."""
        if not self._needs_task(iteration, worker):
            return None
        if self._is_private(iteration, worker.added):
            own = list(places.processes.get(process_of(worker.added), ()))
            return self._add(iteration, worker, own) if own else None
        share = self._share(iteration, places) if len(self._state.workers) > self._most else None
        readers = list(islice(places.roomy, share))
        if not readers:
            places.waiting.append(worker.added.worker_id)
            if len(places.waiting) > 2 * len(self._state.workers):
                _drop_lost(places, self._state.workers)
            self._set_waiting(iteration, places)
            return None
        task = self._add(iteration, worker, readers)
        places.open.appendleft(task.task_id)
        for client_id in readers:
            del places.roomy[client_id]
            self._note_room(places, iteration.clients[client_id])
        return task

    def _add(self, iteration: e.Iteration, worker: e.Worker, readers: list[int]) -> e.Task:
        worker_id = worker.added.worker_id
        task_id, seed = self._ledger.new_id(), self._ledger.new_seed()
        key = self._ledger.new_key()
        self._ledger.commit(
            r.TaskAdded(task_id, iteration.iteration_id, worker_id, seed, key, readers)
        )
        task = self._state.tasks[task_id]
        self._sessions.send(worker_id, mode_of(iteration.parameters).task_start(task))
        return task

    def _set_waiting(self, iteration: e.Iteration, places: _Places) -> None:
        waiting = bool(places.waiting)
        if waiting != iteration.counts.workers_wait:
            self._ledger.commit(r.WorkersWait(iteration.iteration_id, waiting))
            if iteration.computed:
                self._changed(iteration, [])

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def _fill(self, iteration: e.Iteration, places: _Places, client: e.Client) -> Iterator[e.Task]:
        """Assign tasks to a client until it has no room; yield them."""
        while len(client.tasks) < self._most and not iteration.stopped:
            task = (
                self._next_unread(iteration, client)
                or self._next_waiting(iteration, places, client)
                or self._next_shared(iteration, places, client)
            )
            if task is None:
                break
            yield task
        self._note_room(places, client)

    def _next_unread(self, iteration: e.Iteration, client: e.Client) -> e.Task | None:
        """Assign the next task without a reader; one that the client leaves is for others."""
        for task in iteration.unread.values():
            private = self._is_private(iteration, task.worker)
            if client.client_id not in task.leaving and not private:
                self._assign(task, client)
                self._splits.settle(iteration)
                return task
        return None

    def _next_waiting(
        self, iteration: e.Iteration, places: _Places, client: e.Client
    ) -> e.Task | None:
        """Start a task on the next worker that waits, and assign it."""
        task = None
        while places.waiting and task is None and not iteration.computed:
            worker = self._state.workers.get(places.waiting.popleft())
            if worker is not None and self._needs_task(iteration, worker):
                task = self._add(iteration, worker, [client.client_id])
                places.open.appendleft(task.task_id)
        self._set_waiting(iteration, places)
        return task

    def _next_shared(
        self, iteration: e.Iteration, places: _Places, client: e.Client
    ) -> e.Task | None:
        """Assign the next open task that the client does not read."""
        # While workers are searched, most of them may still need a reader.
        many = places.searching and len(self._state.workers) > self._most
        if many or len(client.tasks) >= iteration.counts.open:
            return None
        for _ in range(len(places.open)):
            task = self._state.tasks.get(places.open[0])
            if task is None or task.over:
                places.open.popleft()
                continue
            places.open.rotate(-1)
            if task.task_id not in client.tasks:
                return self._assign(task, client)
        return None

    def _assign(self, task: e.Task, client: e.Client) -> e.Task:
        left = task.task_id in client.left_tasks
        reader_id = self._ledger.new_id() if left else client.client_id
        self._ledger.commit(r.TaskAssigned(task.task_id, client.client_id, reader_id))
        return task

    def _read_private(self, client: e.Client, worker: e.Worker) -> None:
        """Let a new client read a worker of its process."""
        iteration = client.iteration
        task = iteration.by_worker.get(worker.added.worker_id)
        if task is not None and not task.over:
            self._assign(task, client)
        elif iteration.sources is not None and self._needs_task(iteration, worker):
            self._add(iteration, worker, [client.client_id])

    def _refill(
        self, iteration: e.Iteration, places: _Places, client_ids: Iterable[int]
    ) -> Iterator[int]:
        """Assign tasks to clients that have room, and notify them; one step for each task."""
        for client_id in client_ids:
            client = iteration.clients.get(client_id)
            if client is None:
                continue
            added = []
            for task in self._fill(iteration, places, client):
                added.append(task)
                yield 1
            if added:
                self._sessions.send(client_id, task_update(client, added))
            yield 1
        self._make_room(iteration, places)
        if iteration.computed and bool(iteration.unread) != places.unread_known:
            places.unread_known = bool(iteration.unread)
            self._changed(iteration, [])

    def _note_room(self, places: _Places, client: e.Client) -> None:
        if len(client.tasks) < self._most:
            places.roomy[client.client_id] = None
        else:
            places.roomy.pop(client.client_id, None)

    def _make_room(self, iteration: e.Iteration, places: _Places) -> None:
        """Ask clients to leave tasks that others read too, for tasks and workers that need one."""
        if self._wanted(iteration, places) > 0:
            self._sessions.in_slices(self._revoke(iteration, places))

    def _wanted(self, iteration: e.Iteration, places: _Places) -> int:
        """Return the number of places that clients are to be asked for."""
        spare = iteration.readings > iteration.counts.open - len(iteration.unread)
        if places.roomy or iteration.stopped or not spare:
            return 0
        waiting = 0 if iteration.computed else len(places.waiting)
        share = self._share(iteration, places)
        return len(iteration.unread) + share * waiting - places.leaving

    def _share(self, iteration: e.Iteration, places: _Places) -> int:
        """Return the number of readers that each task can have if all workers have one."""
        tasks = len(places.open) + len(places.waiting)
        if places.searching:
            tasks = len(self._state.workers)
        return max(1, min(SHARED_BY, self._most * len(iteration.clients) // max(1, tasks)))

    def _revoke(self, iteration: e.Iteration, places: _Places) -> Iterator[int]:
        """Ask clients to leave tasks with the most readers; one step for each request."""
        for task_id in list(places.open):
            share = self._share(iteration, places)
            task = self._state.tasks.get(task_id)
            while task is not None and len(task.readers) > share:
                if self._wanted(iteration, places) <= 0:
                    return
                client = self._state.clients[next(iter(task.readers))]
                self._ledger.commit(r.TaskRevoked(task_id, client.client_id))
                places.leaving += 1
                leave = {task_id: task.leaving[client.client_id]}
                self._sessions.send(client.client_id, task_update(client, [], leave))
                yield 1

    # ── messages ──────────────────────────────────────────────────────────────────────────────────
    def _notify_readers(self, iteration: e.Iteration, tasks: Iterable[e.Task]) -> None:
        by_client: dict[int, list[e.Task]] = {}
        for task in tasks:
            for client_id in task.readers:
                by_client.setdefault(client_id, []).append(task)
        self._sessions.send_all(
            (client_id, task_update(iteration.clients[client_id], mine))
            for client_id, mine in by_client.items()
            if client_id in iteration.clients
        )

    def warn(self, now: float) -> None:
        """Warn of workers that have waited for long, unless their turn comes when others end."""
        for iteration_id, places in self._places.items():
            if places.warn_at == math.inf:
                continue
            iteration = self._state.iterations[iteration_id]
            if not places.waiting or _is_idle(iteration):
                places.warn_at = 0.0
            elif not places.warn_at:
                places.warn_at = now + WAITING_SECONDS
            elif now >= places.warn_at:
                places.warn_at = math.inf
                _drop_lost(places, self._state.workers)
                self._warn(iteration, len(places.waiting))

    def _warn(self, iteration: e.Iteration, waiting: int) -> None:
        dataset = self._state.datasets[iteration.job.dataset_id]
        if not waiting or not mode_of(iteration.parameters).may_never_start(dataset):
            return
        text = (
            f"{waiting} workers have no task of job {iteration.job.added.job!r}: each of its "
            f"{len(iteration.clients)} clients reads at most {self._most} workers at a time; read "
            "it with more clients, or use fewer workers"
        )
        _log.warning("%s", text)
        clients = list(iteration.clients.values())
        self._sessions.send_all(
            (client.client_id, msgspec.structs.replace(task_update(client, []), warning=text))
            for client in clients
        )

    # ── rules ─────────────────────────────────────────────────────────────────────────────────────
    def _needs_task(self, iteration: e.Iteration, worker: e.Worker) -> bool:
        dataset = self._state.datasets[iteration.job.dataset_id]
        return mode_of(iteration.parameters).needs_task(iteration, dataset, worker)

    @staticmethod
    def _is_private(iteration: e.Iteration, worker: r.WorkerAdded) -> bool:
        return is_private(iteration.parameters.target_workers, worker)

    def _is_limited(self, iteration: e.Iteration) -> bool:
        """Return whether an iteration has, or will have, more tasks than a client reads."""
        return len(iteration.tasks) > self._most or iteration.counts.workers_wait

    def _places_of(self, iteration: e.Iteration) -> _Places:
        places = self._places.get(iteration.iteration_id)
        if places is None:
            self._places[iteration.iteration_id] = places = _Places()
        return places


def _is_idle(iteration: e.Iteration) -> bool:
    """Return whether an iteration starts no tasks."""
    return iteration.computed or iteration.stopped or not iteration.clients


def _drop_lost(places: _Places, workers: Container[int]) -> None:
    places.waiting = deque(x for x in dict.fromkeys(places.waiting) if x in workers)


def _discard(processes: dict[str, dict[int, None]], client: e.Client) -> None:
    clients = processes.get(client.process, {})
    clients.pop(client.client_id, None)
    if not clients:
        processes.pop(client.process, None)
