"""The interface of processing modes.

A mode decides how the elements of a dataset are divided among tasks, and its `sharing` which
clients read which task. Neither has state: what an iteration has done is in the dispatcher's state,
so that replaying records rebuilds it. What a mode has besides is volatile: its `Coordinator`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from stoker.dataset.options import Options
from stoker.dataset.tree.node import INFINITE_CARDINALITY
from stoker.errors import InvalidArgumentError, StokerError
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.entities.entities import (
    ClientEntry,
    Iteration,
    JobEntry,
    TaskEntry,
    TaskTally,
    WorkerEntry,
)
from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo
from stoker.service.dispatcher.modes.state import (
    AnyAgreement,
    AnyAgreementChange,
    AnyPosition,
    ModeState,
)
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.rules.processing_modes import ShardingPolicy

SHARED_BY = 4
"""Readers that a task keeps, at most, when clients are asked to leave it: a slow one of them does
not stop the worker, and each costs the worker a connection."""

NO_LOCAL_CLIENT = "its elements are for clients of its process, which has none left"
"""The reason for which a task for one process is dropped."""


class Commits(Protocol):
    """The ledger, as far as modes use it."""

    commits: int

    def new_id(self) -> int:
        """Return an id that is greater than all before."""


class Coordinator:
    """Agreement of the clients of one iteration: empty, unless a sharing has a subclass.

    Volatile: clients repeat their messages on a new session.
    """

    def received(self, client: ClientEntry, message: m.ToDispatcher) -> None:
        """Handle a message of a client that only this mode has; ignore others.

        Raises:
            InvalidArgumentError: if it is not possible.
        """

    def check_close(self, close: m.ClientClose) -> None:
        """Check the request of a client that closes, before anything is recorded.

        Raises:
            InvalidArgumentError: if it is not possible.
        """

    def leaving(self, task: TaskEntry) -> None:
        """Handle the request of a worker that drains: clients leave its task."""

    def client_resumed(self, client: ClientEntry) -> None:
        """Send a client what it may have missed."""

    def client_removed(self, client_id: int) -> None:
        """Forget the messages of a client."""

    def advance(self) -> None:
        """Do what the state and the messages of clients ask for."""


NO_COORDINATOR = Coordinator()


class Sharing:
    """The rules by which the clients of an iteration share its tasks: first come, first served.

    Attributes:
        reads_all: every client reads all tasks.
        remedy: advice for workers that clients have no room for.
    """

    reads_all = False
    remedy = "read it with more clients, or use fewer workers"

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that clients can share a dataset by these rules, as `Mode.check`."""

    def new_agreement(self, options: Options) -> AnyAgreement | None:
        """Return what clients agree on at first, if they do; `options` are the dataset's."""
        return None

    def client_added(self, client: ClientEntry) -> None:
        """Apply the record of a new client."""

    def client_removed(self, client: ClientEntry, position: AnyPosition | None) -> None:
        """Apply the record of a client that is no longer one of the iteration.

        Args:
            client: the client.
            position: its position in what clients have agreed on, if it has sent one.
        """

    def fits(self, iteration: Iteration, change: AnyAgreementChange) -> bool:
        """Return whether a change of what clients have agreed on fits the state."""
        return False

    def apply(self, iteration: Iteration, change: AnyAgreementChange) -> None:
        """Change what clients have agreed on."""

    def of_task(self, iteration: Iteration) -> m.AnySharing:
        """Return what the worker of a task needs."""
        return m.ByArrival()

    def lacking(self, task: TaskEntry) -> list[m.ToWorker]:
        """Return the messages about a task that its worker may lack on a new session."""
        return []

    def has_ended(self, iteration: Iteration) -> bool:
        """Return whether clients have agreed that the iteration ends."""
        return False

    def successor_error(self, other: ClientEntry, hello: m.ClientHello) -> StokerError | None:
        """Return the error of a client whose place a new client takes; ``None`` if both read.

        Args:
            other: a client of the iteration.
            hello: that of the new client.
        """
        return None

    def readers_for(self, client: ClientEntry) -> list[int]:
        """Return the clients that read a task that is started as `client` has room."""
        return [client.client_id]

    def may_add(self, iteration: Iteration, most: int) -> bool:
        """Return whether clients can read another task, if each reads at most `most`."""
        return True

    def share(self, iteration: Iteration, tasks: int, most: int) -> int:
        """Return the number of readers that each of `tasks` can have."""
        return max(1, min(SHARED_BY, most * len(iteration.clients) // max(1, tasks)))

    def is_limited(self, iteration: Iteration, most: int) -> bool:
        """Return whether there are, or will be, more tasks than a client reads."""
        return len(iteration.tasks) > most or iteration.counts.workers_wait

    def coordinator(
        self,
        iteration: Iteration,
        ledger: Commits,
        sessions: Sessions,
        agree: Callable[[AnyAgreementChange], None],
        restart: Callable[[Iteration, list[TaskEntry]], None],
    ) -> Coordinator:
        """Return what the clients agree on; `NO_COORDINATOR` if they do not.

        Args:
            iteration: the iteration.
            ledger: the state.
            sessions: the sessions of clients.
            agree: records a change of what the clients have agreed on.
            restart: replaces the tasks of an iteration whose clients are lost.
        """
        return NO_COORDINATOR


class Mode:
    """The rules that modes share unless they override them.

    Args:
        policy: the policy, where a mode has several.
        sharing: the rules by which clients share tasks.

    Attributes:
        state_type: the state of its iterations.
        lists_in_order: workers list splits in the order in which shards divide them.
        repeats_elements: after the loss of a task another one calls the functions of the user for
            the same elements, so that calls which end a worker are worth a search.
        ends_with_clients: the tasks stop when the last client has closed or is lost, also those of
            a named job; the next client begins the epoch anew. A client that the dispatcher does
            not know is admitted again, because it knows what it has read.
    """

    state_type: type[ModeState] = ModeState
    lists_in_order = False
    repeats_elements = True
    ends_with_clients = False

    def __init__(self, policy: ShardingPolicy, sharing: Sharing) -> None:
        self._policy = policy
        self.sharing = sharing

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that clients can read a dataset by these rules, before anything is recorded.

        Args:
            dataset: the dataset that `hello` names.
            hello: the request of a client.

        Raises:
            StokerError: if they cannot; says why.
        """
        self.sharing.check(dataset, hello)

    def no_local_worker(self) -> InvalidArgumentError:
        """Return the error of a client that reads workers of its process, which has none."""
        return InvalidArgumentError(
            "Local reads require local tf.data workers, but no local worker is found. You need to "
            "run local tf.data service workers in your training workers. "
            'target_workers="LOCAL" reads only workers of the trainer\'s process'
        )

    def new_state(
        self,
        dataset: m.RegisterDataset | DatasetInfo,
        addresses: Sequence[str],
        hello: m.ClientHello | None = None,
    ) -> AnyModeState:
        """Return the state of a new iteration.

        Args:
            dataset: the dataset.
            addresses: those of the configured workers.
            hello: that of the first client.

        Raises:
            StokerError: if the workers cannot divide the dataset; says why.
        """
        return self.state_type(agreement=self.sharing.new_agreement(dataset.options))

    def fits(self, state: AnyModeState) -> bool:
        """Return whether the state of an iteration is one of this mode."""
        # The type of the agreement does not depend on the options.
        agreement = self.sharing.new_agreement(Options())
        return type(state) is self.state_type and type(state.agreement) is type(agreement)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────
    def needs_task(self, iteration: Iteration, dataset: DatasetInfo, worker: WorkerEntry) -> bool:
        """Return whether the iteration starts a task on `worker` if a client can read it."""
        return (
            self.accepts_tasks(iteration)
            and worker.added.worker_id not in iteration.by_worker
            and not worker.draining
            and dataset.runs_on(worker.added)
        )

    def accepts_tasks(self, iteration: Iteration) -> bool:
        """Return whether the iteration starts tasks on workers that have none."""
        return not iteration.computed and not self.sharing.has_ended(iteration)

    def may_never_start(self, dataset: DatasetInfo) -> bool:
        """Return whether a worker that waits until clients can read its task may never get one."""
        return dataset.size == INFINITE_CARDINALITY

    def common_seed(self, iteration: Iteration) -> int | None:
        """Return the seed of all tasks; ``None`` if each draws its own."""
        return iteration.job.added.seeds.seed

    def task_start(self, task: TaskEntry) -> m.TaskStart:
        """Return what the worker needs to run `task`, also the calls that ended others."""
        iteration, poison = task.iteration, task.iteration.poison
        return m.TaskStart(
            task.task_id,
            iteration.iteration_id,
            iteration.job.dataset_id,
            seed=task.seed,
            epoch=iteration.epoch,
            mode=self.of_task(task, self.sharing.of_task(iteration)),
            key=task.key,
            traced=poison.traced(),
            suspects=poison.suspects(),
            poisoned=list(poison.poisoned),
            job=iteration.job.added.job,
            salts=iteration.job.added.seeds.salts,
        )

    def of_task(self, task: TaskEntry, sharing: m.AnySharing) -> m.AnyTask:
        """Return what the task yields, and how clients share it."""
        return m.WholeTask(sharing)

    def reaches(self, client: ClientEntry, task: TaskEntry) -> bool:
        """Return whether `client` can read `task`, and is notified of its loss."""
        target_workers = client.iteration.parameters.target_workers
        # Where all clients read the same tasks, the process of a worker makes no difference.
        return self.sharing.reads_all or task.worker.serves(client.process, target_workers)

    def is_private(self, parameters: m.JobParameters, worker: WorkerInfo) -> bool:
        """Return whether only clients in its own process read from `worker`."""
        return not self.sharing.reads_all and worker.is_private(parameters.target_workers)

    def frees_local_tasks(self, parameters: m.JobParameters) -> bool:
        """Return whether tasks for one process end with its last client.

        Others stay, so that the next client of the job gets their elements.
        """
        return False

    def check_reopened(self, iteration: Iteration, hello: m.ClientHello) -> None:
        """Check that a client may open an iteration that others have opened before.

        Raises:
            FailedPreconditionError: if the tasks for its process have ended.
        """

    def continues(self, iteration: Iteration, hello: m.ClientHello) -> bool:
        """Return whether a client can read an iteration that exists, or begins another one."""
        return True

    def length(self, iteration: Iteration) -> int | None:
        """Return the number of positions of the epoch, where clients ask for positions."""
        return None

    def reopened_warning(self, iteration: Iteration, hello: m.ClientHello) -> str:
        """Return the warning for a client that opens an iteration that exists, or ""."""
        return ""

    def check_resumed(self, iteration: Iteration) -> None:
        """Check that a restarted dispatcher can continue an iteration.

        Raises:
            StokerError: if it cannot; says why.
        """

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def sources_to_list(self, dataset: DatasetInfo) -> list[int]:
        """Return the sources whose splits a worker must list before tasks start."""
        return []

    def split_sources(
        self, dataset: DatasetInfo, listed: dict[int, int], workers: int
    ) -> list[m.SplitSource]:
        """Return the sources whose splits are assigned to tasks.

        Args:
            dataset: the dataset.
            listed: the number of splits that a worker has listed, by source.
            workers: the number of workers now.
        """
        return []

    def check_listed(self, iteration: Iteration) -> None:
        """Check what a worker has listed, before tasks start.

        Raises:
            StokerError: if tasks cannot read it.
        """

    def shard_page(self, task: TaskEntry, request: m.ShardRequest) -> m.ShardPage:
        """Return the next files of the shard of `task`.

        Raises:
            InvalidArgumentError: if the task has no shard, or no such files.
        """
        raise InvalidArgumentError(f"task {task.task_id} has no shard of files")

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────
    def end_task(self, task: TaskEntry) -> None:
        """Update the iteration of a task that computes no more; called by records."""

    def elements_lost(self, task: TaskEntry, undelivered: int | None) -> int | None:
        """Return the elements that are lost with a task; ``None`` if nobody can tell.

        Args:
            task: a task of a lost worker.
            undelivered: the elements that the worker reported not to have delivered; ``None`` if it
                could not report.
        """
        # Clients have consumed all elements of a delivered task.
        return 0 if task.delivered else undelivered

    # Computed is not delivered: clients end when a task is computed and read, the epoch when
    # elements are consumed or counted as lost. (docs/decisions/050)
    def is_computed(self, iteration: Iteration, counts: TaskTally) -> bool:
        """Return whether no task computes, and none is added unless one is lost before its end."""
        return not counts.running and counts.exhausted > 0

    def is_finished(self, iteration: Iteration) -> bool:
        """Return whether all elements were consumed or are lost, and no task is added."""
        return not iteration.counts.open and self.is_computed(iteration, iteration.counts)

    def is_computed_for(self, client: ClientEntry) -> bool:
        """Return what `is_computed` returns, for the tasks that `client` can read.

        A task that no client reads will be assigned to one.
        """
        iteration = client.iteration
        if any(self.reaches(client, task) for task in iteration.unread.values()):
            return False
        if iteration.parameters.target_workers != "LOCAL":
            return iteration.computed
        # The tasks of the client's process may end long before those of others.
        mine = TaskTally()
        for task in iteration.tasks.values():
            if self.reaches(client, task):
                mine.add(task)
        return iteration.computed or self.is_computed(iteration, mine)

    def awaits(self, iteration: Iteration, worker: WorkerInfo) -> bool:
        """Return whether clients are notified of a worker that has come or was lost."""
        return False

    def absent(self, client: ClientEntry) -> str:
        """Return whom a client waits for that has not registered, as part of a sentence, or ""."""
        return ""

    def loss(self, task: TaskEntry) -> m.TaskLost:
        """Return the message to clients about a lost task."""
        address, elements = task.worker.address, task.elements_lost
        return m.TaskLost(task.task_id, address, task.lost, elements=elements)

    def is_collected(self, job: JobEntry, config: DispatcherConfig) -> bool:
        """Return whether a job without clients is removed after `job_gc_timeout_ms`."""
        return True
