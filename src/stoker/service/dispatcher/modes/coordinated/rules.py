"""Coordinated reads: every consumer reads all tasks, in rounds."""

from collections.abc import Callable

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import Client, Iteration, Task
from stoker.service.dispatcher.entities.records import DatasetAdded
from stoker.service.dispatcher.modes.coordinated.rounds import RoundsCoordinator
from stoker.service.dispatcher.modes.mode import Commits, Coordinator, Sharing
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.rules.checks import check_coordinated


class Coordinated(Sharing):
    """All clients are consumers, and read all tasks in turns."""

    reads_all = True
    remedy = "all consumers read the same, so use fewer workers"

    def check(self, dataset: m.RegisterDataset | DatasetAdded, hello: m.ClientHello) -> None:
        """Check that a dataset can be read in rounds."""
        check_coordinated(hello, dataset.size, dataset.options)

    def of_task(self, iteration: Iteration) -> m.AnySharing:
        """Return the consumers, and those of them that have left."""
        count = iteration.parameters.num_consumers
        assert count is not None
        return m.InRounds(count, iteration.absent, iteration.finite_coordinated)

    def lacking(self, task: Task) -> list[m.ToWorker]:
        """Return that consumers have left: their places are for their successors."""
        absent = task.iteration.absent if not task.over else ()
        return [m.ClientReleased(task.task_id, 0, consumer_index=index) for index in absent]

    def has_ended(self, iteration: Iteration) -> bool:
        """Return whether the last round is known."""
        return iteration.rounds_ended

    def readers_for(self, client: Client) -> list[int]:
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
        restart: Callable[[Iteration, list[Task]], None],
    ) -> Coordinator:
        """Return the schedule of the rounds."""
        return RoundsCoordinator(iteration, ledger, sessions, restart)
