"""OFF: every task yields the whole dataset."""

from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import Iteration, TaskTally
from stoker.service.dispatcher.modes.mode import NO_LOCAL_CLIENT, Mode
from stoker.service.rules.checks import deleted, frees_local_tasks


class Off(Mode):
    """Every task yields the whole dataset."""

    def frees_local_tasks(self, parameters: m.JobParameters) -> bool:
        """Return True for LOCAL reads without a cross-trainer cache."""
        return frees_local_tasks(parameters)

    def check_reopened(self, iteration: Iteration, hello: m.ClientHello) -> None:
        """Check that no task for the client's process was dropped.

        Another one would start from the beginning, and the client expect the rest.
        """
        if not self.frees_local_tasks(hello.parameters):
            return
        for task in iteration.tasks.values():
            dropped = task.lost == NO_LOCAL_CLIENT and not task.read
            if dropped and task.worker.process == hello.process:
                raise deleted(task.task_id, task.worker.address, hello.job)

    def accepts_tasks(self, iteration: Iteration) -> bool:
        """Return True until all tasks are computed and clients have consumed one of them.

        A task may be computed in the first moment; workers that come while it is read join.
        """
        if self.sharing.has_ended(iteration):
            return False
        if not iteration.computed:
            return True
        counts = iteration.counts
        return not iteration.stopped and counts.open > 0 and not counts.delivered

    def is_computed(self, iteration: Iteration, counts: TaskTally) -> bool:
        """Return whether no task computes, no worker waits and a whole task is left, or was read.

        After the loss of the last one, another worker yields the dataset from its beginning.
        """
        return not counts.running and not counts.workers_wait and counts.whole > 0
