"""The simulated shell of the dispatcher."""

from collections.abc import Callable, Sequence

from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import logic
from stoker.service.keys import WorkerIdentity
from tests.simulation.network import Side, World, can_connect
from tests.simulation.process import Process
from tests.simulation.session import Ear, Encoded, decode_to_dispatcher

TICK_SECONDS = 0.25

REPORT_SECONDS = 0.05
"""Time in which a supervisor notices the death of a child, and tries to report it again."""

SUPERVISOR = -1
"""The session of the supervisor of all workers."""


class SimDispatcher:
    """The dispatcher and its open sessions.

    Attributes:
        begun: (job, epoch, source, epoch of the source, split) → the task that was told to read it.
        begun_twice: the splits that a second task was told to read.
    """

    def __init__(self, world: World, config: DispatcherConfig, tasks_per_client: int) -> None:
        self.world = world
        self.process = Process(world, "D")
        self.logic = logic.Dispatcher(config, world.rng, world.now, tasks_per_client)
        self.begun: dict[tuple[int, int, int, int], int] = {}
        self.begun_twice: list[str] = []
        self._sessions: dict[int, Side] = {}
        self._last_peer = 0
        self._supervised = False
        self.process.every(TICK_SECONDS, lambda: self._do(self.logic.tick(world.now)), lambda: True)

    def accept(self, side: Side) -> None:
        """Accept a session."""
        self._last_peer += 1
        peer = self._last_peer
        self._sessions[peer] = side

        def received(data: bytes) -> None:
            self._do(self.logic.received(peer, decode_to_dispatcher(data), self.world.now))

        def lost() -> None:
            if self._sessions.pop(peer, None) is not None:
                self._do(self.logic.disconnected(peer, self.world.now))

        side.listener = Ear(received, lost)

    def call(
        self, source: Process, request: m.Request, answered: Callable[[m.Reply | None], None]
    ) -> None:
        """Answer a call after all that waits; its answer may be lost like those of sessions."""
        if not can_connect(source, self.process, self.world):
            source.after(self.world.rng.uniform(0.1, 0.5), lambda: answered(None))
            return

        def answer() -> None:
            reply = self.answer(request)
            delay = self.world.rng.uniform(0.001, 0.01)
            self.world.after(delay, lambda: source.run(lambda: answered(reply)))

        self.process.run(answer)

    def answer(self, request: m.Request) -> m.Reply:
        """Return the answer of a call now."""
        reply, actions = self.logic.call(request, self.world.now)
        self._do(actions)
        return reply

    def report_death(self, identity: WorkerIdentity) -> None:
        """Deliver the report of a supervisor whose session never breaks."""
        self.process.run(lambda: self._died(identity))

    def _died(self, identity: WorkerIdentity) -> None:
        if not self._supervised:
            self._supervised = True
            self._do(self.logic.received(SUPERVISOR, m.SupervisorHello(1, 1), self.world.now))
        died = m.WorkerDied(identity.worker_id, "it was killed", identity.key)
        self._do(self.logic.received(SUPERVISOR, died, self.world.now))

    def _do(self, actions: Sequence[logic.Action]) -> None:
        if self.logic.has_work:
            self.process.after(0, lambda: self._do(self.logic.work(self.world.now)))
        for action in actions:
            side = self._sessions.get(action.peer)
            if side is None:
                continue
            if isinstance(action, logic.Send):
                self._check_begun(action.message)
                side.send(Encoded(action.message))
            else:
                side.close()
                assert side.listener is not None
                self.process.after(0, side.listener.lost)

    def _check_begun(self, message: m.FromDispatcher) -> None:
        """Record the task that may read a split: no other may, ever."""
        if not isinstance(message, m.SplitGrant) or not message.begun:
            return
        task = self.logic.state.tasks.get(message.task_id)
        if task is None:
            return
        for split in message.begun:
            key = (task.iteration.iteration_id, message.source, message.source_epoch, split)
            first = self.begun.setdefault(key, message.task_id)
            if first != message.task_id:
                self.begun_twice.append(f"split {key} by tasks {first} and {message.task_id}")
