"""Coordinated reads: every consumer reads all tasks, in rounds."""

from collections.abc import Callable

from stoker.dataset.options import Options
from stoker.errors import StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import ClientEntry, Iteration, TaskEntry
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.modes.coordinated.rounds import RoundsCoordinator, schedule_of
from stoker.service.dispatcher.modes.coordinated.state import Schedule, ScheduleChange
from stoker.service.dispatcher.modes.mode import Commits, Coordinator, Sharing
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.rules.checks import check_coordinated


def absent(iteration: Iteration) -> list[int]:
    """Return the indexes of consumers that have left."""
    present = {client.consumer_index for client in iteration.clients.values()}
    return sorted(schedule_of(iteration).indexes.keys() - present)


class Coordinated(Sharing):
    """All clients are consumers, and read all tasks in turns."""

    reads_all = True
    remedy = "all consumers read the same, so use fewer workers"

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that a dataset can be read in rounds."""
        check_coordinated(hello, dataset.size, dataset.options)

    def new_agreement(self, options: Options) -> Schedule:
        """Return a schedule that does not begin before the first consumer."""
        return Schedule(options.finite_coordinated)

    def client_added(self, client: ClientEntry) -> None:
        """Add a consumer to the schedule."""
        if client.consumer_index is not None:
            schedule_of(client.iteration).join(client.client_id, client.consumer_index)

    def client_removed(self, client: ClientEntry, position: m.RoundPosition | None) -> None:
        """Remove a consumer from the schedule."""
        if client.consumer_index is not None:
            schedule = schedule_of(client.iteration)
            schedule.leave(client.client_id, client.consumer_index, position)

    def fits(self, iteration: Iteration, change: ScheduleChange) -> bool:
        """Return whether a change of the schedule follows the last one."""
        new, schedule = change.change, schedule_of(iteration)
        changes, position = schedule.changes, new.position
        next_number = changes[-1].number + 1 if changes else 0
        numbers = [position.slot, new.fillers, *position.runs.values()]
        return (
            not schedule.ended
            and new.number == next_number
            and min(numbers) >= 0
            and all(task_id in iteration.tasks for task_id in (*position.turns, *position.runs))
            and all(client_id in iteration.clients for client_id in change.starts)
        )

    def apply(self, iteration: Iteration, change: ScheduleChange) -> None:
        """Change the schedule."""
        schedule = schedule_of(iteration)
        schedule.changes = [x for x in schedule.changes if x.number >= change.keep_from]
        schedule.changes.append(change.change)
        for client_id, start in change.starts.items():
            schedule.starts[client_id] = start
            if (index := iteration.clients[client_id].consumer_index) is not None:
                # The successor begins, and keeps its own position from now on.
                schedule.left_at.pop(index, None)

    def of_task(self, iteration: Iteration) -> m.AnySharing:
        """Return the consumers, and those of them that have left."""
        count = iteration.parameters.num_consumers
        assert count is not None
        return m.InRounds(count, absent(iteration), schedule_of(iteration).finite)

    def lacking(self, task: TaskEntry) -> list[m.ToWorker]:
        """Return that consumers have left: their places are for their successors."""
        # A task that is over keeps nothing for a consumer.
        indexes = absent(task.iteration) if not task.over else ()
        return [m.ClientReleased(task.task_id, 0, consumer_index=index) for index in indexes]

    def has_ended(self, iteration: Iteration) -> bool:
        """Return whether the last round is known."""
        return schedule_of(iteration).ended

    # A trainer that was killed has closed nothing: its lease would hold the index for a minute.
    def successor_error(self, other: ClientEntry, hello: m.ClientHello) -> StokerError | None:
        """Return the error of the client that has the index of a new consumer."""
        if other.consumer_index is None or other.consumer_index != hello.consumer_index:
            return None
        return UnavailableError(
            f"another consumer with consumer_index {hello.consumer_index} of job {hello.job!r} "
            "took the place of this one; each consumer needs its own index"
        )

    def readers_for(self, client: ClientEntry) -> list[int]:
        """Return all consumers."""
        return list(client.iteration.clients)

    def may_add(self, iteration: Iteration, most: int) -> bool:
        """Return whether all consumers can read another task."""
        return iteration.counts.open < most

    def share(self, iteration: Iteration, tasks: int, most: int) -> int:
        """Return the number of consumers, of which none leaves a task for another."""
        return len(iteration.clients)

    def is_limited(self, iteration: Iteration, most: int) -> bool:
        """Return False: a worker that does not fit waits until the end."""
        return False

    def coordinator(
        self,
        iteration: Iteration,
        ledger: Commits,
        sessions: Sessions,
        agree: Callable[[ScheduleChange], None],
        restart: Callable[[Iteration, list[TaskEntry]], None],
    ) -> Coordinator:
        """Return the schedule of the rounds."""
        return RoundsCoordinator(iteration, ledger, sessions, agree, restart)
