"""The client without I/O: messages of dispatcher and workers in, actions out.

The shell (`shell.py`) executes the actions and reports events; the user's thread calls `take`. A
*connection* is the number of an attempt to connect to a worker, so that late messages of an older
connection are recognized.
"""

import random
from typing import TypeAlias

from stoker.dataset.streams.measure.stopwatch import Stopwatch
from stoker.errors import CancelledError, ErrorRecord, StokerError, from_record
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client.actions import (
    Action,
    SetHeartbeat,
    ToDispatcher,
    ToWorker,
    Warn,
)
from stoker.service.client.final_losses import FinalLosses
from stoker.service.client.flow.consumption import Consumption
from stoker.service.client.flow.credit import new_credit
from stoker.service.client.flow.grants import Grants
from stoker.service.client.give_up_policy import GiveUpPolicy
from stoker.service.client.iteration_end import IterationEnd
from stoker.service.client.losses import Losses
from stoker.service.client.measure.reading import Reading
from stoker.service.client.orders.order import ArrivalOrder, Order, ReceivedChunk
from stoker.service.client.orders.round_order import new_schedule
from stoker.service.client.orders.round_reading import new_round_reading
from stoker.service.client.registration import Registration
from stoker.service.client.task_cursor import TaskCounts, TaskCursor
from stoker.service.client.tasks import ClientTasks
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.wants import new_wants
from stoker.service.rules.checks import assigns_splits
from stoker.wire import frames as f


class EndOfIteration:
    """The end of the iteration, as `Client.take` returns it."""


Item: TypeAlias = ReceivedChunk | EndOfIteration | StokerError


class Client:
    """A client that reads one iteration.

    Args:
        hello: names the job and its dataset.
        options: the options of the reader.
        rng: jitter of reconnections.
        now: seconds, on the clock of all later calls.
        share: the part of a deterministic epoch that is read; ``None``: that of
            the options.

    Attributes:
        tasks: the tasks that it reads.
        shared: another client has opened the iteration too.
        losses: what workers and other clients lost.
        final_losses: whether more may be lost.
        registration: its identity at the dispatcher.
        consumption: what has arrived, and what the user has consumed.
        wait: runs while the user waits, on the clock of the calls.
        end: whether all is read.
    """

    def __init__(
        self,
        hello: m.ClientHello,
        options: ReadOptions,
        rng: random.Random,
        now: float,
        share: EpochShare | None = None,
    ) -> None:
        self.shared = False
        self.losses = Losses(raised=options.on_loss == "raise")
        self.final_losses = FinalLosses(raised=options.on_loss == "raise")
        self.registration = Registration(hello, now)
        self.wait = Stopwatch()
        cache = options.cross_trainer_cache
        self._trainer = "" if cache is None else cache.trainer_id
        self._actions: list[Action] = []
        limit, nbytes = options.max_outstanding_requests, options.buffer_bytes
        self._schedule = schedule = new_schedule(hello.parameters)
        self._wants = wants = new_wants(hello.parameters, share or options.share(), nbytes, limit)
        self._in_order = schedule or wants
        self._order: Order = schedule or (ArrivalOrder() if wants is None else wants.order)
        # Programs written for tf.data service restart workers and expect an epoch that was hardly
        # read to begin anew. (docs/decisions/019)
        self._credit: Grants = wants or new_credit(
            limit,
            nbytes,
            self._order.needed_first,
            singly=schedule is not None,
            gradual=options.tensorflow_timing,
        )
        self.tasks = ClientTasks(schedule, self._credit, self.losses, self._actions, rng)
        cursors = self._cursors = self.tasks.cursors
        self.consumption = Consumption(self._credit, cursors)
        self._rounds = new_round_reading(schedule, self.tasks, self._credit, self.consumption)
        self.end = IterationEnd(self._order, cursors, awaits_answers=options.tensorflow_timing)
        self._limit = limit
        self._assigns_splits = assigns_splits(options.processing_mode)
        self._give_up = GiveUpPolicy(
            options.dispatcher_address, options.connect_timeout, self._assigns_splits, now
        )
        self._counts = TaskCounts()
        self._current: ReceivedChunk | None = None
        self._error: StokerError | None = None
        self._closed = False
        self._close = m.ClientClose()
        self._absent = ""

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self, now: float) -> list[Action]:
        """Send the hello on a new session."""
        if self._error is None and not self._closed:  # otherwise it would be refused again
            self._do(ToDispatcher(self.registration.current_hello(now, with_tree=False)))
        return self._take_actions()

    def session_lost(self, now: float, reason: str = "") -> list[Action]:
        """Handle a session that broke or could not be opened. Reading continues."""
        self._give_up.session_lost(now, reason)
        self.registration.update(reason=reason)
        return self._take_actions()

    def session_message(self, message: m.FromDispatcher, now: float) -> list[Action]:
        """Handle a message of the dispatcher."""
        if self._closed:
            return []
        if message.journal_position is not None:
            self.registration.update(journal_position=message.journal_position)
        if isinstance(message, m.ClientWelcome):
            self._welcome(message)
        elif isinstance(message, m.DatasetUnknown):
            # Only now with the tree, which may be large: most dispatchers know the dataset.
            self._do(ToDispatcher(self.registration.current_hello(now, with_tree=True)))
        elif isinstance(message, m.DispatcherStopped):
            # Any dispatcher can continue a deterministic epoch.
            if self._wants is None:
                self._do(Warn(self._give_up.dispatcher_stopped()))
        elif isinstance(message, m.Tasks):
            self.end.answered()
            self.final_losses.changed()
            self._change_tasks(message, now)
        elif isinstance(message, m.EndState):
            self._warn(self.final_losses.answered(message))
        elif isinstance(message, m.Rounds) and self._rounds is not None:
            self._rounds.change(message)
        elif isinstance(message, m.HeartbeatInterval):
            self._do(SetHeartbeat(message.heartbeat_ms))
        elif isinstance(message, m.Refused):
            self.fail(from_record(message.error))
        self._keep_turns(now)
        return self._take_actions()

    @property
    def error(self) -> StokerError | None:
        """The error that is raised after the elements that have arrived, or before if cancelled."""
        return self._error

    def fail(self, error: StokerError) -> None:
        """Raise `error` after the elements that have arrived."""
        self._error = self._error or error

    def _welcome(self, welcome: m.ClientWelcome) -> None:
        if self._wants is not None:
            self._wants.begin_epoch(welcome.length)
            if self.registration.is_forgotten(welcome):
                self.tasks.forget_all()
        self._give_up.welcomed(welcome.dispatcher_patience_ms)
        self.final_losses.changed()
        self.registration.welcomed(welcome)
        self._do(SetHeartbeat(welcome.heartbeat_ms))
        if welcome.warning:
            self._do(Warn(welcome.warning))
        for cursor in self._cursors.values():
            if cursor.read:  # the message may be lost
                self._do(ToDispatcher(m.TaskRead(cursor.task.task_id)))

    def _change_tasks(self, tasks: m.Tasks, now: float) -> None:
        for task in tasks.added:
            self.tasks.add(task, self.wait.seconds(now), now)
        for task_id, reader_id in tasks.leave.items():
            if (answer := self.tasks.leave(task_id, reader_id)) is not None:
                self._do(ToDispatcher(answer))
            else:
                self._settle()
        for dropped in tasks.dropped:
            self._warn(self.losses.elements_dropped(dropped))
        for lost in tasks.lost:
            self._warn(self.tasks.lose(lost))
        self.end.computed, self.shared = tasks.computed, tasks.shared
        self._absent = tasks.absent
        self._warn(tasks.warning or None)

    def _warn(self, text: str | None) -> None:
        if text is not None:
            self._do(Warn(text))

    def _keep_turns(self, now: float) -> None:
        """Do what the order of reading demands after each event."""
        if self._wants is not None:
            self.tasks.report_all(self._wants.due_tasks(now))
        if self._rounds is not None:
            if self._rounds.discard(now):
                self._settle()
            report = self._rounds.keep(registered=self.registration.done)
            if report is not None:
                self._do(ToDispatcher(report))

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def connected(self, connection: int, protocol: str = "") -> list[Action]:
        """Send the hello on a new connection to a worker, over the transport `protocol`."""
        cursor = self.tasks.of_connection(connection)
        if cursor is not None:
            cursor.reading.protocol = protocol
            hello = self.registration.data_hello(
                cursor, connection, self._trainer, metered=self._credit.metered
            )
            self._do(ToWorker(connection, hello))
        return self._take_actions()

    def connection_lost(self, connection: int, reason: str, now: float) -> list[Action]:
        """Handle a connection that broke or could not be opened."""
        self.tasks.connection_lost(connection, reason, now)
        self._keep_turns(now)
        return self._take_actions()

    def worker_message(self, connection: int, message: f.Message, now: float) -> list[Action]:
        """Handle a message of a worker."""
        cursor = self.tasks.of_connection(connection)
        # Late messages of a connection that was replaced concern nobody.
        if cursor is None or self.tasks.leaves(cursor, message, now):
            return self._take_actions()
        self._give_up.worker_message(message, now)
        cursor.heard()
        if self.consumption.due:
            self._settle()
        if isinstance(message, f.Frame):
            self._receive(cursor, message, now)
        elif isinstance(message, f.Welcome):
            cursor.open, cursor.attempts, cursor.reason = True, 0, ""
            self._credit.connected(cursor.task.task_id, message.buffer_bytes)
            if message.first_frame > cursor.next_frame and self._schedule is not None:
                self._schedule.skipped(cursor.task.task_id, message.first_frame)
            self.tasks.start_at(cursor, message.first_frame)
        elif isinstance(message, f.Ready):
            # Another client may give elements back after `End`. (docs/decisions/063)
            cursor.ended = cursor.ended and not message.elements
            task_id = cursor.task.task_id
            grown = self._credit.ready(task_id, message.elements, message.returned)
            self.tasks.report_all(grown)
        elif isinstance(message, f.Counts):
            self._counts.add(cursor, message.counts)
        elif isinstance(message, f.Report):
            cursor.reading.reported(message, now, self.wait.seconds(now))
            self._credit.reported(cursor.task.task_id, cursor.reading.evidence)
        elif isinstance(message, f.TaskEnd):
            cursor.ended, cursor.reading.ended_after = True, self.wait.seconds(now)
            self.tasks.ended(cursor.task.task_id)
            self._credit.ended(cursor.task.task_id)
            if not cursor.read:
                cursor.read = True
                self._do(ToDispatcher(m.TaskRead(cursor.task.task_id)))
                self.end.task_read(now)
        elif isinstance(message, f.Bye):
            self._dismissed(cursor, message.error, now)
        self._keep_turns(now)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Reconnect, report consumption, and give up if nothing can be read any more."""
        self._settle()
        for cursor in self._cursors.values():
            # No frame of a task that has ended gives occasion to report its last elements.
            occasion = self._order.empty or cursor.ended
            if occasion and cursor.reported < cursor.consumed:
                self.tasks.report(cursor)
            if cursor.waits and not self._closed and now >= cursor.try_at:
                self.tasks.connect(cursor, now)
            self._warn(cursor.unreachable(now, keeps=self._credit.by_frame))
        self._check_give_up(now)
        self._keep_turns(now)
        return self._take_actions()

    def _receive(self, cursor: TaskCursor, frame: f.Frame, now: float) -> None:
        if frame.number != cursor.next_frame:
            # A lost frame is sent again on the next connection.
            reason = f"frame {frame.number} came instead of {cursor.next_frame}"
            self.tasks.reconnect(cursor, reason, now)
            return
        cursor.next_frame += 1
        # Another client gave elements back after the end.
        cursor.ended = cursor.confirmed = False
        chunk = ReceivedChunk.of(frame, cursor.task.task_id)
        self.consumption.outstanding += self._order.put(chunk)
        if self._wants is not None:
            self._wants.arrived(chunk, now)
        cursor.reading.received(chunk.positions, chunk.nbytes)
        self._credit.received(chunk.task_id, chunk.positions, self.wait.run(0, now))

    def take_counts(self) -> dict[str, int]:
        """Return the counts of the tasks since the last call."""
        return self._counts.take({} if self._in_order is None else self._in_order.counts)

    def _dismissed(self, cursor: TaskCursor, error: ErrorRecord | None, now: float) -> None:
        """Handle `Bye`: the worker lacks the task (yet), stops, or refuses."""
        reason = "it closed the connection" if error is None else error.message
        if error is not None and error.code not in ("NotFoundError", "UnavailableError"):
            self.fail(from_record(error))
        self.tasks.reconnect(cursor, reason, now)

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def take(self, seconds: float, now: float) -> tuple[Item | None, list[Action]]:
        """Return the next chunk, the end or an error; ``None`` to wait. The last chunk is consumed.

        The thread that receives the next message accounts for consumed chunks, unless so much is
        consumed that a worker could be out of credit.

        Args:
            seconds: time that the user has worked on the last chunk.
            now: seconds.
        """
        self.tasks.report_all(self._credit.begin())
        before, self._current = self._current, None
        if (
            before is not None
            and not before.repeated
            and self.consumption.add(before, seconds, now)
        ):
            self._settle()
        # The job is cancelled: other errors are returned after the elements that have arrived.
        if isinstance(self._error, CancelledError):
            return self._error, self._take_actions()
        self._current = self._order.take()
        self._keep_turns(now)
        if self._current is not None:
            self.wait.run(0, now)
            return self._current, self._take_actions()
        self.wait.run(1, now)
        if self.end.reached:
            self._settle()
            # In turns, the end is agreed on, and by position it is known.
            # Asking again costs one round trip per epoch. (docs/decisions/063)
            if self._in_order is None and (self._confirm_end() or self.end.awaits_answer(now)):
                return None, self._take_actions()
            if self._awaits_losses(now):
                return self._error, self._take_actions()
            self.drop_received()
            return EndOfIteration(), self._take_actions()
        of_schedule = None if self._schedule is None else self._schedule.error
        return self._error or of_schedule, self._take_actions()

    def _confirm_end(self) -> bool:
        """Ask workers to confirm the end; return whether one was asked for the first time."""
        unsure = self.end.take_unsure()
        self.tasks.report_all(cursor.task.task_id for cursor in unsure)
        return bool(unsure)

    def _awaits_losses(self, now: float) -> bool:
        """Ask for the losses of other clients; return whether the end waits for the answer."""
        if self._in_order is not None or not self.shared:
            self.final_losses.known = True
            return False
        if self.final_losses.must_ask(now):
            self._do(ToDispatcher(m.ReadToEnd()))
        return self.final_losses.awaited(now, reachable=self._give_up.unreachable_since is None)

    def close(self, consumed: int) -> list[Action]:
        """Give back all after the first `consumed` elements of the current chunk."""
        if self._closed:
            return []
        self.consumption.settle()
        self._closed = True
        current = self._current
        if current is not None and current.repeated:
            current = None
        if current is not None:
            self.consumption.elements += min(consumed, len(current.elements))
            consumed = consumed if current.error is None else 1
        partly = None if current is None else current.task_id
        given_back = self.tasks.give_back_all(partly, consumed)
        # The dispatcher passes it on: a connection may break before `GiveBack` arrives.
        position = None if self._schedule is None else self._schedule.position
        self._close = m.ClientClose(given_back, position)
        self._do(ToDispatcher(self._close))
        return self._take_actions()

    def drop_received(self) -> None:
        """Release the memory of all that has arrived; call it after `close`."""
        self._current = None
        self._order.clear()

    @property
    def partly_read(self) -> m.TaskInfo | None:
        """A task of which elements were consumed before `close`, and its end was not received."""
        consumed = (self._cursors[task_id] for task_id, x in self._close.consumed.items() if any(x))
        return next((cursor.task for cursor in consumed if not cursor.read), None)

    def farewell(self, now: float) -> m.CloseClient | None:
        """Return the call in place of a `ClientClose` that did not arrive; call it after `close`.

        Returns:
            ``None`` if there is no dispatcher that knows the client.
        """
        # The call would be repeated for 2 s, and delay the end of a program.
        if self._give_up.is_hopeless(now):
            return None
        return self.registration.farewell(self._close)

    def waiting_for(self) -> str:
        """Return what a read waits for, as the end of a sentence."""
        waiting = self.tasks.awaited(None if self._in_order is None else self._in_order.awaited)
        if self._absent:
            waiting.append(self._absent)
        if self._give_up.unreachable_since is not None:
            waiting.insert(0, self._give_up.dispatcher())
        return ", ".join(waiting) or "the dispatcher to find a worker for it"

    # Receiving accounts for consumed elements: each message that the user's thread sends costs 50
    # to 90 us there. (docs/decisions/022)
    def _settle(self) -> None:
        """Account for consumed chunks and send workers new credit."""
        self.tasks.report_all(self.consumption.settle())
        for left in self.tasks.finish_leaving():
            self._do(ToDispatcher(left))

    def advance(self, elements: int) -> int | None:
        """Skip elements, as `Wants.skip`; ``None`` if elements can only be read and dropped."""
        return None if self._wants is None else self._wants.skip(elements, self.consumption)

    @property
    def position(self) -> int | None:
        """The position of a deterministic epoch that the user consumes next."""
        return None if self._wants is None else self._wants.position

    # ── statistics ────────────────────────────────────────────────────────────────────────────────
    def reading(self, seconds: float, now: float) -> Reading:
        """Return where the time goes; the shell measures the seconds since the first read."""
        waited = self.wait.seconds(now)
        return Reading(
            seconds=seconds,
            waited=waited,
            tasks=[cursor.reading_at(waited) for cursor in self._cursors.values()],
            in_turns=self._schedule is not None,
            by_position=self._wants is not None,
            max_outstanding_requests=self._limit,
            assigns_splits=self._assigns_splits,
        )

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _check_give_up(self, now: float) -> None:
        reading = any(cursor.open and not cursor.over for cursor in self._cursors.values())
        error = self._give_up.error(now, reading, bool(self.consumption.outstanding))
        if error is None and self._wants is not None:
            error = self._give_up.no_worker(now, self.tasks.last_lost)
        if error is not None:
            self.fail(error)

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions = self._actions.copy()
        self._actions.clear()
        return actions
