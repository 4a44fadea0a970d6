"""The simulated dispatcher: processes, one after another, with the journal of their disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, CallRange
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import logic
from stoker.service.dispatcher.commits.journal_gate import JournalGate
from stoker.service.dispatcher.commits.journal_position import OutdatedJournalError
from stoker.service.dispatcher.state.snapshot import dump
from stoker.service.dispatcher.state.state import State
from stoker.service.keys import WorkerIdentity
from tests.simulation.disk import Disk, SimJournal
from tests.simulation.network import Side, World, can_connect
from tests.simulation.process import Process
from tests.simulation.session import Ear, Encoded, decode_to_dispatcher
from tests.simulation.shadow import Shadow

TICK_SECONDS = 0.25

SUPERVISOR = -1
"""The session of the supervisor of all workers."""

COMPARED = 0.02
"""Part of the units after which the whole state is compared with the shadow, besides crashes."""


@dataclass(frozen=True)
class _Answer:
    """The answer of a call, which waits in the gate like an action."""

    reply: m.Reply
    answered: Callable[[m.Reply], None]


class _Shell:
    """One process of the dispatcher and its open sessions.

    Args:
        owner: what outlives the process.
        process: the process.
        state: the state to continue, of a journal that is not new.
    """

    def __init__(self, owner: "SimDispatcher", process: Process, state: State | None) -> None:
        self.world, self.process, self._owner = owner.world, process, owner
        self._shadow = Shadow(None if state is None else list(dump(state)))
        self.logic = logic.Dispatcher(
            owner.config,
            self.world.rng,
            self.world.now,
            owner.tasks_per_client,
            journaled=True,
            state=state,
        )
        self._gate = JournalGate()
        self._journal: SimJournal | None = None
        if owner.disk is not None:
            self._journal = SimJournal(
                owner.disk, process, self._gate._release, self._gate._journal_failed
            )
            self._gate._journal = self._journal  # type: ignore[assignment]
        self._gate.watch(self._execute, self._journal_failed)
        self._sessions: dict[int, Side] = {}
        self._last_peer = 0
        self._supervised = False
        self._carry_out([])
        process.every(TICK_SECONDS, self._tick, lambda: True)

    def accept(self, side: Side) -> None:
        """Accept a session."""
        self._last_peer += 1
        peer = self._last_peer
        self._sessions[peer] = side

        def received(data: bytes) -> None:
            message = decode_to_dispatcher(data)
            try:
                self._carry_out(self.logic.received(peer, message, self.world.now))
            except OutdatedJournalError as error:
                self._gate.abandon()
                self._owner.refuse_journal(error)

        def lost() -> None:
            if self._sessions.pop(peer, None) is not None:
                self._carry_out(self.logic.disconnected(peer, self.world.now))

        side.listener = Ear(received, lost)

    def call(self, request: m.Request, answered: Callable[[m.Reply], None]) -> None:
        """Answer a call when its records are durable."""
        if isinstance(request, m.CancelJob):
            answered = self._noting_cancel(answered)
        elif isinstance(request, m.DrainWorker) and request.worker in self.logic.state.addresses:
            self._owner.asked_ids.add(self.logic.state.addresses[request.worker])
        reply, actions = self.logic.call(request, self.world.now)
        self._carry_out([*actions, _Answer(reply, answered)])

    def _noting_cancel(self, answered: Callable[[m.Reply], None]) -> Callable[[m.Reply], None]:
        """Note the tasks and clients of the job before it is cancelled; return what to call."""
        state = self.logic.state
        keys, tasks = {client.key for client in state.clients.values()}, set(state.tasks)
        self._owner.cancelled_tasks.append(tasks)

        def durable(reply: m.Reply) -> None:
            if isinstance(reply, m.Done):
                self._owner.cancelled.append((keys, tasks))
            answered(reply)

        return durable

    def call_now(self, request: m.Request) -> m.Reply:
        """Answer a call, with its records durable."""
        reply, actions = self.logic.call(request, self.world.now)
        self._carry_out(actions)
        if self._journal is not None:
            self._journal.flush()
        return reply

    def died(self, death: m.WorkerDied) -> None:
        """Handle the report of a supervisor."""
        if not self._supervised:
            self._supervised = True
            hello = m.SupervisorHello(1, 1)
            self._carry_out(self.logic.received(SUPERVISOR, hello, self.world.now))
        self._carry_out(self.logic.received(SUPERVISOR, death, self.world.now))

    def end(self, *, silently: bool = False) -> None:
        """Kill the process; units that are not durable are lost, a group perhaps in part."""
        self.compare()
        self.process.kill(silently=silently)
        if self._journal is not None:
            self._journal.tear()

    def compare(self) -> None:
        """Compare the state with the replay of what was written."""
        self._owner.differences += self._shadow.differences(self.logic.state)

    def _tick(self) -> None:
        self._carry_out(self.logic.tick(self.world.now))

    def _carry_out(self, actions: Sequence[Any]) -> None:
        if self.logic.has_work:
            self.process.after(0, self._work)
        self.logic.take_log()
        unit = self.logic.take_unit()
        self._shadow.add(unit)
        if unit and self.world.rng.random() < COMPARED:
            self.compare()
        self._gate.pass_on(unit, list(actions))

    def _work(self) -> None:
        self._carry_out(self.logic.work(self.world.now))

    def _execute(self, action: Any) -> None:
        if isinstance(action, _Answer):
            action.answered(action.reply)
        elif (side := self._sessions.get(action.peer)) is None:
            pass
        elif isinstance(action, logic.Send):
            self._owner.check_begun(self.logic.state, action.message)
            side.send(Encoded(action.message))
        else:
            side.close()
            assert side.listener is not None
            self.process.after(0, side.listener.lost)

    def _journal_failed(self, error: Exception) -> None:
        """Stop, because the state is ahead of the journal."""
        self.world.note(f"       D stops: {error}")
        self._gate.abandon()
        self.end()


class SimDispatcher:
    """The dispatcher at one address: it may crash, and restarts with its disk.

    Args:
        world: the clock and the network.
        config: timeouts and intervals.
        tasks_per_client: as of `logic.Dispatcher`.
        disk: keeps the journal; ``None`` for a dispatcher without one, which forgets all.

    Attributes:
        starts: the number of processes so far.
        begun_twice: the splits that a second task was told to read.
        differences: what replays of the journal have shown.
        cancelled_tasks: the tasks at each request to cancel the job.
        cancelled: the keys of clients, and the tasks, at each cancel that is durable.
        asked_ids: the ids of workers that an operator has asked to drain.
    """

    def __init__(
        self, world: World, config: DispatcherConfig, tasks_per_client: int, disk: Disk | None
    ) -> None:
        self.world, self.config, self.tasks_per_client = world, config, tasks_per_client
        self.disk = disk
        self.starts = 1
        self.begun_twice: list[str] = []
        self.differences: list[str] = []
        self.cancelled_tasks: list[set[int]] = []
        self.cancelled: list[tuple[set[bytes], set[int]]] = []
        self.asked_ids: set[int] = set()
        self._deaths: list[m.WorkerDied] = []
        self._begun: dict[tuple[int, int, int, int], int] = {}
        self._shell = _Shell(self, Process(world, "D"), None)

    @property
    def process(self) -> Process:
        """The last process."""
        return self._shell.process

    @property
    def logic(self) -> logic.Dispatcher:
        """The logic of the last process."""
        return self._shell.logic

    def accept(self, side: Side) -> None:
        """Accept a session."""
        self._shell.accept(side)

    def call_now(self, request: m.Request) -> m.Reply:
        """Answer a call, with its records durable."""
        return self._shell.call_now(request)

    def call(
        self, source: Process, request: m.Request, answered: Callable[[m.Reply | None], None]
    ) -> None:
        """Answer a call after all that waits; ``None`` if the dispatcher cannot be reached."""
        if not can_connect(source, self.process, self.world):
            source.after(self.world.rng.uniform(0.1, 0.5), lambda: answered(None))
            return
        shell = self._shell
        done = False

        def answer(reply: m.Reply | None) -> None:
            nonlocal done
            if not done:
                done = True
                delay = self.world.rng.uniform(0.001, 0.01)
                self.world.after(delay, lambda: source.run(lambda: answered(reply)))

        def check() -> None:
            """Notice that the dispatcher ended before it answered."""
            if not shell.process.alive:
                answer(None)
            elif not done:
                self.world.after(0.1, check)

        check()
        shell.process.run(lambda: shell.call(request, answer))

    def report_death(
        self,
        identity: WorkerIdentity,
        calls: dict[int, list[CallRange]] | None = None,
        alone: int = NO_DIGEST,
    ) -> None:
        """Deliver the report of a supervisor, which repeats all to each new process.

        Args:
            identity: the worker.
            calls: as of `WorkerDied`.
            alone: as of `WorkerDied`.
        """
        key, how = identity.key, "it was killed"
        death = m.WorkerDied(identity.worker_id, how, key, calls or {}, alone)
        self._deaths.append(death)
        shell = self._shell
        shell.process.run(lambda: shell.died(death))

    def crash(self, back: float | None, *, silently: bool = False) -> None:
        """Kill the process, and start another after `back` seconds."""
        if not self.process.alive:
            return
        self.world.note("       D crashes")
        self._shell.end(silently=silently)
        if back is not None:
            self.world.after(back, self.restart)

    def restart(self) -> None:
        """Start a process that continues from the journal, unless one runs."""
        if self.process.alive or (self.disk is not None and self.disk.full):
            return
        self._start()

    def cut_journal(self, units: int, back: float) -> None:
        """Kill the process, and start another after `back` seconds without the last units."""
        assert self.disk is not None
        self.crash(None)
        self.disk.cut(units)
        self.world.after(back, self.restart)

    def refuse_journal(self, error: OutdatedJournalError) -> None:
        """End, as peers know more than the journal; an operator restores it and starts another."""
        assert self.disk is not None
        self.crash(None)
        self.world.note(f"       D: {error}")
        self.disk.restore()
        self.world.after(self.world.rng.uniform(0.0, 1.0), self.restart)

    def take_over(self) -> None:
        """Start a process though another one may run, which is frozen; it may write no more."""
        assert self.disk is not None
        if self.disk.full or self.process.frozen_since is None:
            self.restart()
            return
        if self.disk.owner is not None:
            self.disk.owner.tear()
        self._start()

    def _start(self) -> None:
        state = State() if self.disk is None else self.disk.read()
        self.starts += 1
        units = 0 if self.disk is None else len(self.disk.units)
        self.world.note(f"       D starts from {units} units")
        process = Process(self.world, "D")
        self._shell = shell = _Shell(self, process, state if state.history.journal_id else None)
        for death in self._deaths:
            process.after(self.world.rng.uniform(0.01, 0.5), partial(shell.died, death))

    def compare(self) -> None:
        """Compare the state with the replay of what was written."""
        self._shell.compare()

    def check_begun(self, state: State, message: m.FromDispatcher) -> None:
        """Record the task that may read a split: no other may, ever."""
        if not isinstance(message, m.SplitGrant) or not message.begun:
            return
        task = state.tasks.get(message.task_id)
        if task is None:
            return
        for split in message.begun:
            key = (task.iteration.iteration_id, message.source, message.source_epoch, split)
            first = self._begun.setdefault(key, message.task_id)
            if first != message.task_id:
                self.begun_twice.append(f"split {key} by tasks {first} and {message.task_id}")
