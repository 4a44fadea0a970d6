"""Follow the schedule of a coordinated read: what arrives, leaves and is reported by it."""

from stoker.service import messages as m
from stoker.service.client.flow.consumption import Consumption
from stoker.service.client.flow.grants import Grants
from stoker.service.client.orders.round_order import RoundOrder
from stoker.service.client.tasks import ClientTasks


def new_round_reading(
    schedule: RoundOrder | None, tasks: ClientTasks, credit: Grants, consumption: Consumption
) -> "RoundReading | None":
    """Return what follows a schedule, if there is one."""
    return None if schedule is None else RoundReading(schedule, tasks, credit, consumption)


class RoundReading:
    """Do what the schedule of a coordinated read demands.

    Args:
        schedule: the order of the rounds.
        tasks: that are read.
        credit: of their workers.
        consumption: of their elements.
    """

    def __init__(
        self, schedule: RoundOrder, tasks: ClientTasks, credit: Grants, consumption: Consumption
    ) -> None:
        self._schedule = schedule
        self._tasks = tasks
        self._credit = credit
        self._consumption = consumption

    def change(self, rounds: m.Rounds) -> None:
        """Apply the message `Rounds`."""
        started = self._schedule.started
        self._schedule.change(rounds.changes, rounds.hold, rounds.ended)
        if not started and self._schedule.started:
            for cursor in self._tasks.cursors.values():
                first = self._schedule.first_frame(cursor.task.task_id)
                self._tasks.start_at(cursor, first)

    def discard(self, now: float) -> bool:
        """Drop chunks that are not yielded; return whether there are any to account for."""
        discarded = self._schedule.take_discarded()
        self._consumption.discard(discarded, now)
        return bool(discarded)

    def keep(self, *, registered: bool) -> m.RoundReached | None:
        """Leave tasks and give credit by the schedule; return what the dispatcher must know."""
        for task_id, frames in self._schedule.to_leave:
            self._tasks.leave_after(task_id, frames)
        self._tasks.report_all(self._credit.order_changed())
        ready = all(cursor.open or cursor.over for cursor in self._tasks.cursors.values())
        return self._schedule.report(ready and registered)
