"""The schedule of a coordinated read: agreed on with all consumers, and recorded.

While nothing changes, consumers follow the schedule by themselves (`client/orders/round_order.py`).
A change is agreed on in one round trip: all consumers stop where they are and report their
positions (*hold*); the change begins at the position of the one that is farthest, which the others
reach by the old schedule. Workers that have registered meanwhile join together, those that drain
and those that were lost leave, and a consumer that restarts begins there.

A worker that drains is read up to that position: only what one consumer has passed is promised to
the others. A task that ends needs no change: all consumers notice its end at the same slot.
"""

from collections.abc import Callable

import msgspec

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.modes.coordinated.state import Schedule, ScheduleChange
from stoker.service.dispatcher.modes.mode import Commits, Coordinator
from stoker.service.dispatcher.sessions.sessions import Sessions


def schedule_of(iteration: e.Iteration) -> Schedule:
    """Return the schedule of a coordinated read."""
    schedule = iteration.mode_state.agreement
    assert schedule is not None
    return schedule


class RoundsCoordinator(Coordinator):
    """Keep the schedule of one iteration.

    Apart from the requests of consumers and of workers that drain, which they repeat on a new
    session, all that is to be done follows from the state.

    Args:
        iteration: the iteration.
        ledger: the state.
        sessions: the sessions of clients.
        agree: records a change of the schedule.
        restart: replaces the tasks of an iteration whose consumers are lost.
    """

    def __init__(
        self,
        iteration: e.Iteration,
        ledger: Commits,
        sessions: Sessions,
        agree: Callable[[ScheduleChange], None],
        restart: Callable[[e.Iteration, list[e.TaskEntry]], None],
    ) -> None:
        self._iteration = iteration
        self._schedule = schedule_of(iteration)
        self._ledger = ledger
        self._sessions = sessions
        self._agree = agree
        self._restart = restart
        self._hold = 0
        self._answers: dict[int, m.RoundReached] = {}
        self._requests: dict[int, m.RoundReached] = {}
        self._to_leave: set[int] = set()
        self._checked = -1

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def received(self, client: e.ClientEntry, message: m.ToDispatcher) -> None:
        """Handle the report of a consumer."""
        if not isinstance(message, m.RoundReached):
            return
        self._check(message.position)
        self._checked = -1
        if not message.hold:
            self._requests[client.client_id] = message
        elif message.hold == self._hold:
            self._answers[client.client_id] = message

    def check_close(self, close: m.ClientClose) -> None:
        """Check the position at which a consumer closes."""
        if close.position is not None:
            self._check(close.position)

    def _check(self, position: m.RoundPosition) -> None:
        unknown = {*position.turns, *position.runs} - self._iteration.tasks.keys()
        if unknown:
            raise InvalidArgumentError(
                f"a position names task {min(unknown)}, which iteration "
                f"{self._iteration.iteration_id} does not have"
            )

    def leaving(self, task: e.TaskEntry) -> None:
        """Handle the request of a worker that drains: consumers leave its task."""
        self._checked = -1
        self._to_leave.add(task.task_id)

    def client_resumed(self, client: e.ClientEntry) -> None:
        """Send a consumer what it may have missed; it repeats its reports."""
        if client.client_id in self._schedule.starts or self._hold:
            self._sessions.send(client.client_id, self._update(client))
        else:
            self._sessions.send(client.client_id, m.Rounds())

    def client_removed(self, client_id: int) -> None:
        """Forget the reports of a consumer."""
        self._answers.pop(client_id, None)
        self._requests.pop(client_id, None)

    def advance(self) -> None:
        """Do what the state and the reports of consumers ask for."""
        if self._checked == self._ledger.commits:
            return
        self._checked = self._ledger.commits
        if self._is_over or not self._iteration.clients:
            self._hold = 0
            if self._iteration.clients and not self._schedule.ended:
                self._end_stopped()
        elif self._hold:
            self._complete()
        elif self._wants_change:
            self._begin()

    # ── pending changes ───────────────────────────────────────────────────────────────────────────
    @property
    def _is_over(self) -> bool:
        iteration = self._iteration
        return self._schedule.ended or iteration.stopped or iteration.error is not None

    @property
    def _consumers(self) -> dict[int, e.ClientEntry]:
        """The consumers whose place is known."""
        clients = self._iteration.clients
        return {x: client for x, client in clients.items() if x in self._schedule.starts}

    @property
    def _joining(self) -> list[e.TaskEntry]:
        """Tasks that have no turns yet."""
        rounds = self._schedule.changes
        return self._not_in(rounds[-1] if rounds else None)

    def _not_in(self, change: m.RoundsChange | None) -> list[e.TaskEntry]:
        """Return the tasks that did not exist at a change, and that consumers do not leave."""
        known = {*self._left, *(change.position.runs if change is not None else ())}
        tasks = self._iteration.by_worker.values()
        return [task for task in tasks if not task.over and task.task_id not in known]

    @property
    def _left(self) -> list[int]:
        """Tasks of workers that drain, which consumers leave or have left."""
        rounds, tasks = self._schedule.changes, self._iteration.by_worker.values()
        left = self._to_leave.union(rounds[-1].left if rounds else ())
        return [task.task_id for task in tasks if task.task_id in left and not task.over]

    @property
    def _has_leaving(self) -> bool:
        """True if a task has turns and must be left: its worker drains, or is lost unread."""
        rounds, tasks = self._schedule.changes, self._iteration.tasks
        if not rounds:
            return False
        lost = any(_is_lost(tasks[task_id]) for task_id in rounds[-1].position.turns)
        return lost or not set(self._left) <= set(rounds[-1].left)

    @property
    def _restarted(self) -> list[int]:
        """Consumers that have restarted and are ready to begin."""
        clients = self._iteration.clients
        return [x for x in self._requests if x in clients and x not in self._schedule.starts]

    @property
    def _wants_change(self) -> bool:
        if self._joining or self._has_leaving or self._restarted:
            return True
        consumers = self._consumers
        reports = [report for x, report in self._requests.items() if x in consumers]
        if any(report.owed for report in reports) and self._has_open_turns:
            return True
        return self._iteration.computed and any(report.at_end for report in reports)

    @property
    def _has_open_turns(self) -> bool:
        tasks, rounds = self._iteration.tasks, self._schedule.changes
        return bool(rounds) and any(not tasks[x].over for x in rounds[-1].position.turns)

    # ── a change ──────────────────────────────────────────────────────────────────────────────────
    def _begin(self) -> None:
        if not self._schedule.changes:
            if self._consumers:
                self._commit([m.RoundReached(0, m.RoundPosition())])
        elif self._consumers:
            self._hold, self._answers = self._ledger.new_id(), {}
            for client_id in self._consumers:
                self._sessions.send(client_id, m.Rounds(hold=self._hold))
        elif self._restarted:
            self._begin_again()

    def _begin_again(self) -> None:
        """Let consumers begin that have all restarted."""
        iteration = self._iteration
        # The consumers have closed, so their positions are known.
        if self._schedule.left_at:
            self._commit([m.RoundReached(0, x) for x in self._schedule.left_at.values()])
            return
        # Nobody knows what the lost ones had read of each task.
        last = self._schedule.changes[-1].position
        begun = [x for x in iteration.by_worker.values() if x.task_id in last.runs and not x.over]
        if begun:
            self._restart(iteration, begun)
        new = {task.task_id for task in self._joining}
        runs = {task_id: 0 for task_id in iteration.tasks if task_id not in new}
        self._commit(
            [m.RoundReached(0, m.RoundPosition(last.slot, [], runs, last.step))], anew=True
        )

    def _end_stopped(self) -> None:
        """Let consumers that come after the tasks were stopped end immediately."""
        iteration = self._iteration
        if iteration.error is not None:
            return
        last = self._schedule.changes[-1] if self._schedule.changes else None
        position = m.RoundPosition() if last is None else last.position
        number = 0 if last is None else last.number + 1
        change = m.RoundsChange(
            number, m.RoundPosition(position.slot, [], position.runs, position.step), last=True
        )
        starts = dict.fromkeys(iteration.clients, (number, change.position))
        self._record(change, starts, number)

    def _record(
        self,
        change: m.RoundsChange,
        starts: dict[int, tuple[int, m.RoundPosition]],
        keep_from: int,
    ) -> None:
        """Record a change, and send it to the consumers."""
        # A request that the change answers must not begin the next change.
        self._requests.clear()
        self._agree(ScheduleChange(change, starts, keep_from))
        self._checked = -1
        for client in self._consumers.values():
            self._sessions.send(client.client_id, self._update(client))

    def _complete(self) -> None:
        """Change the schedule if all consumers have answered."""
        consumers = self._consumers
        # A consumer may have left after its answer.
        self._answers = {x: answer for x, answer in self._answers.items() if x in consumers}
        if len(self._answers) < len(consumers):
            return
        self._hold = 0
        if self._answers:
            self._commit(list(self._answers.values()))
        elif self._wants_change:
            self._begin()

    def _commit(self, answers: list[m.RoundReached], *, anew: bool = False) -> None:
        """Record the change that begins at the farthest of the reported positions."""
        iteration, rounds = self._iteration, self._schedule.changes
        tasks = iteration.tasks
        starting = self._restarted
        for client_id in starting:
            if (closed := self._left_at(client_id, answers)) is not None:
                answers = [*answers, m.RoundReached(0, closed)]
        farthest = max(answers, key=lambda answer: (answer.position.slot, answer.at_end))
        # A change begins at the farthest position, which all consumers reach by the old schedule: a
        # slow consumer stops nobody. (docs/decisions/075)
        slowest = min((answer.position for answer in answers), key=lambda x: x.slot)
        position = farthest.position
        runs = position.runs
        joining = [x.task_id for x in self._not_in(self._in_effect(position.slot))]
        left = self._left
        turns = [x for x in position.turns if not (tasks[x].over or x in left)]
        turns += joining
        last = farthest.at_end and iteration.computed and not joining
        # Fillers keep the numbers of steps equal: to insert an element in the middle would need
        # elements of a task out of order. (docs/decisions/077)
        owed = max(self._owed(answer, runs) for answer in answers)
        change = m.RoundsChange(
            number=rounds[-1].number + 1 if rounds else 0,
            position=m.RoundPosition(
                position.slot, turns, dict.fromkeys([*turns, *left], 0) | runs, position.step
            ),
            # The end is a change too, so that no task can be added between the ends of two
            # consumers. (docs/decisions/078)
            fillers=0 if last else owed,
            last=last,
            left=left,
        )
        if last:  # nothing is left for those that are not ready
            starting = [x for x in iteration.clients if x not in self._consumers]
        starts = {}
        for client_id in starting:
            # A worker that drains is left at a change: only runs that the farthest consumer has
            # passed are promised. (docs/decisions/076)
            start = self._left_at(client_id, answers) or slowest
            effective = None if anew or last else self._in_effect(start.slot)
            if effective is None:
                starts[client_id] = (change.number, change.position)
            else:
                starts[client_id] = (effective.number, start)
        keep_from = change.number if anew else self._first_needed(slowest)
        self._record(change, starts, keep_from)

    def _left_at(self, client_id: int, answers: list[m.RoundReached]) -> m.RoundPosition | None:
        """Return the position at which the predecessor of a consumer has closed.

        Returns:
            ``None`` if it is not known, or the others are more than one round ahead.
        """
        iteration = self._iteration
        index = iteration.clients[client_id].consumer_index
        assert index is not None
        position = self._schedule.left_at.get(index)
        if position is None or self._in_effect(position.slot) is None:
            return None
        slowest = min(answer.position.slot for answer in answers)
        return position if position.slot >= slowest - 1 else None

    def _in_effect(self, slot: int) -> m.RoundsChange | None:
        """Return the latest change that begins at a slot or before, if it is kept.

        A later one never begins if the only consumer that was as far has left.
        """
        before = [x for x in self._schedule.changes if x.position.slot <= slot]
        return before[-1] if before else None

    def _first_needed(self, slowest: m.RoundPosition) -> int:
        """Return the number of the first change that a consumer may need.

        One that has not come yet begins with the first.
        """
        iteration, rounds = self._iteration, self._schedule.changes
        if not rounds:
            return 0
        everybody = len(self._schedule.indexes) == iteration.parameters.num_consumers
        effective = self._in_effect(slowest.slot)
        return effective.number if everybody and effective is not None else rounds[0].number

    def _owed(self, answer: m.RoundReached, runs: dict[int, int]) -> int:
        """Return how many elements a consumer will lack after `runs`, at most."""
        owed = answer.owed
        for task_id, count in runs.items():
            if _is_lost(self._iteration.tasks[task_id]):
                passed = answer.position.runs.get(task_id, 0)
                owed += max(0, count - max(passed, answer.received.get(task_id, 0)))
        return owed

    def _update(self, client: e.ClientEntry) -> m.Rounds:
        """Return all that a consumer must know."""
        starts, tasks = self._schedule.starts, self._iteration.tasks
        first, start = starts.get(client.client_id, (None, None))
        changes = [x for x in self._schedule.changes if first is not None and x.number >= first]
        if changes and start is not None and changes[0].number == first:
            changes[0] = _begin_at(changes[0], start)
        known = {task_id for change in changes for task_id in change.position.turns}
        ended = [x for x in sorted(known) if tasks[x].delivered and not tasks[x].lost]
        return m.Rounds(changes, self._hold, ended)


def _begin_at(change: m.RoundsChange, position: m.RoundPosition) -> m.RoundsChange:
    """Return what a change is to a consumer that begins after it."""
    passed = position.slot - change.position.slot
    return msgspec.structs.replace(
        change, position=position, fillers=max(0, change.fillers - passed)
    )


def _is_lost(task: e.TaskEntry) -> bool:
    """Return whether consumers may lack elements of a task."""
    return bool(task.lost) and task.elements_lost != 0
