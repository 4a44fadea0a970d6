"""Simulated trainings: consumers of an epoch that die, resume, and change in number."""

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from stoker.dataset.positions.counted import Counted
from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.errors import CancelledError
from stoker.service import messages as m
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.wire import frames as f
from tests.simulation.client import Delivery, SimClient
from tests.simulation.cluster import Cluster
from tests.simulation.positions.epoch import EpochPlan
from tests.simulation.positions.scenario import Phase, PositionScenario
from tests.simulation.worker import SimWorker

BACK_SECONDS = 2.0
"""Longest time until a consumer that was lost begins again."""

RESTART_SECONDS = 0.5
"""Longest time until a supervisor has reported a death, and has started another worker."""


class EpochDelivery(Delivery):
    """The elements that one client yielded, which are their positions.

    Args:
        plan: the epoch.
        share: what the client reads.
        start: the element of its share at which it begins.

    Attributes:
        errors: position → the code of the error that was yielded in its place.
        most_held: the most bytes that had arrived and were not yielded.
        most_ahead: the most elements from the next one to the last that had arrived.
    """

    def __init__(self, plan: EpochPlan, share: EpochShare, start: int) -> None:
        super().__init__()
        self.errors: dict[int, str] = {}
        self.most_held = self.most_ahead = 0
        self._plan, self._count = plan, share.count
        self._next = share.base + share.index + start * share.count
        self._held: set[int] = set()

    def connect(self, task: m.TaskInfo) -> None:
        """Do nothing: frames of a task come in any order."""

    def receive(self, message: f.Message) -> None:
        if not isinstance(message, f.Frame):
            return
        for first, number, step in message.positions:
            last = first + (number - 1) * step
            self.most_ahead = max(self.most_ahead, (last - self._next) // self._count + 1)
            self._held.update(x for x in range(first, last + 1, step) if x >= self._next)
        self.most_held = max(self.most_held, sum(map(self._plan.nbytes, self._held)))

    def add(self, chunk: Any, element: int) -> None:
        """Record a yielded element, or the error in its position."""
        self.elements.append(element)
        self._held.discard(self._next)
        self._next += self._count
        if chunk.error is not None:
            self.errors[element] = chunk.error.code


@dataclass(eq=False)
class Run:
    """One client of a consumer.

    Attributes:
        client: the client.
        delivery: what it has yielded.
        share: what it reads.
        start: the element of its share at which it begins.
        indexed: it gives its index; without, only the newest client reads.
        consumer: of which it is a client, if it is no second reader of an index.
        before: what the consumer had yielded of its share when the client began.
    """

    client: SimClient
    delivery: EpochDelivery
    share: EpochShare
    start: int
    indexed: bool
    consumer: "Consumer | None" = None
    before: list[int] = field(default_factory=list)

    @property
    def position(self) -> int:
        """The number of elements of the share before the next one."""
        return self.start + len(self.delivery.elements)

    @property
    def is_over(self) -> bool:
        """True if it has read to the end, or of an endless epoch as much as it wants."""
        return self.client.state in ("ended", "closed")


def is_replaced(run: Run) -> bool:
    """Return whether a client has failed because another without an index reads in its place."""
    return not run.indexed and "num_consumers" in str(run.client.error)


@dataclass(eq=False)
class Consumer:
    """A consumer of the present phase: its clients, one after another.

    Attributes:
        share: what it reads.
        first: the element at which it began.
        saved: what it has yielded up to its last checkpoint.
        run: its client; ``None`` until it begins again.
    """

    share: EpochShare
    first: int
    saved: list[int] = field(default_factory=list)
    run: Run | None = None

    @property
    def position(self) -> int:
        """The number of elements of its share before the next one."""
        return self.first + len(self.saved) if self.run is None else self.run.position

    def save(self, position: int) -> None:
        """Keep what was yielded before `position`; its client is no longer read."""
        if self.run is not None:
            kept = max(0, position - self.run.start)
            self.saved += self.run.delivery.elements[:kept]
            self.run = None
        del self.saved[max(0, position - self.first) :]


class TrainingCluster(Cluster):
    """A cluster in which consumers read one epoch, phase by phase.

    Attributes:
        runs: all clients; the last one reads the whole epoch after all others.
        kept: what the phases have yielded that was not read again, step by step.
        is_over: the consumers of the last phase have left.
        disturbed_at: the time of the last event after which readers need time to go on.
    """

    scenario: PositionScenario

    def __init__(
        self, scenario: PositionScenario, rng: random.Random, trace: list[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, trace)
        self.dataset = scenario.epoch
        self.runs: list[Run] = []
        self.kept: list[int] = []
        self.is_over = False
        self.disturbed_at = 0.0
        self._phase = -1
        self._consumers: list[Consumer] = []
        self._twins: list[Run] = []
        self.world.at(0.0, lambda: self._begin_phase(0, 0))

    @property
    def all_left(self) -> bool:
        return self.is_over and all(client.state != "reading" for client in self.clients)

    def _register(self) -> m.RegisterDataset:
        registration = super()._register()
        counted = Counted(self.scenario.epoch.length)
        return msgspec.structs.replace(registration, positions=counted)

    # ── phases ────────────────────────────────────────────────────────────────────────────────────
    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self.scenario.phases[self._phase]

    def _begin_phase(self, base: int, first: int) -> None:
        """Start the consumers of the next phase, at element `first` of their shares."""
        self._phase += 1
        phase, number = self.phase, self._phase
        self._consumers = [
            Consumer(EpochShare(index=k, count=phase.count, base=base, together=together), first)
            for together in [phase.count if phase.drop_short_step else 1]
            for k in range(phase.count)
        ]
        self.world.note(f"       phase {number}: {phase.count} consumers from {base} + {first}")
        for consumer in self._consumers:
            self._start(consumer)
        for at in phase.rivals:
            self.world.after(at, partial(self._start_rival, number))
        if number + 1 < len(self.scenario.phases):
            self.world.after(phase.seconds, self._end_phase)

    def _end_phase(self) -> None:
        """Stop the consumers, and start others in their place from the last common checkpoint."""
        phase = self.phase
        positions = [self._checkpoint(consumer) for consumer in self._consumers]
        # Those that are behind at the end of the epoch have no element in a short step.
        ended = all(x.run is not None and x.run.is_over for x in self._consumers)
        position = max(positions) if ended else min(positions)
        runs = [consumer.run for consumer in self._consumers if consumer.run is not None]
        runs += self._twins
        for consumer in self._consumers:
            consumer.save(position)
        self._keep()
        for run in runs:
            if phase.stop == "closed":
                run.client.process.run(run.client.stop)
            else:
                run.client.crash(silently=phase.stop != "crashed")
        base = self._consumers[0].share.base
        self._consumers, self._twins = [], []
        after = self.scenario.phases[self._phase + 1]
        if after.count != phase.count:
            base, position = base + position * phase.count, 0
        self.world.after(phase.pause, partial(self._begin_phase, base, position))

    def _keep(self) -> None:
        """Keep what the consumers of the phase have yielded, in the order of their steps."""
        most = max(len(consumer.saved) for consumer in self._consumers)
        for step in range(most):
            self.kept += [x.saved[step] for x in self._consumers if step < len(x.saved)]

    def _checkpoint(self, consumer: Consumer) -> int:
        """Return the position of the last state of a consumer."""
        if consumer.run is not None and consumer.run.is_over:
            return consumer.position
        return consumer.position - (consumer.position - consumer.first) % self.phase.checkpoint

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def start_client(self, number: int) -> None:
        """Start the client that reads the whole epoch, after all others."""
        self._open("F", EpochShare(), 0, indexed=False)

    def _start(self, consumer: Consumer, host: str = "") -> None:
        """Start a client of a consumer, unless it has one, or another phase has begun."""
        if consumer not in self._consumers or consumer.run is not None:
            return
        share, indexed, others = consumer.share, self.phase.indexed, self._consumers
        run = self._open(host or f"C{share.index}", share, consumer.position, indexed=indexed)
        run.consumer, run.before = consumer, consumer.saved.copy()
        consumer.run = run
        run.client.left = partial(self._left, consumer, run)
        if self.phase.lockstep:
            self.keep_step(run.client, lambda: run.position, lambda: self._positions_of(others))

    def _positions_of(self, consumers: list[Consumer]) -> list[int]:
        """Return the positions of consumers that have not ended."""
        return [
            consumer.position
            for consumer in consumers
            if consumer.run is None or not consumer.run.is_over
        ]

    def _start_rival(self, phase: int) -> None:
        """Start a second client of a consumer, from its last state.

        Without an index it reads in place of the first, else both read.
        """
        if phase != self._phase or not self._consumers:
            return
        consumer, host = self.world.rng.choice(self._consumers), "R"
        position = self._checkpoint(consumer)
        if self.phase.indexed:
            run = self._open(host, consumer.share, position, indexed=True, pace=self.phase.pace)
            self._twins.append(run)
            return
        consumer.save(position)
        self._start(consumer, host)

    def _open(
        self, host: str, share: EpochShare, start: int, *, indexed: bool, pace: int = 1
    ) -> Run:
        self._disturb()
        consumers = {}
        if indexed:
            consumers = {"consumer_index": share.index, "num_consumers": share.count}
        options = self._options(buffer_bytes=self.scenario.reader_bytes, **consumers)
        delivery = EpochDelivery(self.scenario.epoch, share, start)
        runs = sum(client.process.host == host for client in self.clients)
        client = self._add_client(
            f"{host}{'b' * runs}",
            options,
            self._hello(options, draws=m.Draws(self.scenario.epoch.seed)),
            host=host,
            delivery=delivery,
            share=share,
            start=start,
            stop_after=self._stop_after(share, start),
            seconds=pace * self.scenario.client_seconds,
        )
        run = Run(client, delivery, share, start, indexed)
        self.runs.append(run)
        return run

    def _stop_after(self, share: EpochShare, start: int) -> int | None:
        """Return the number of elements after which a client of an endless epoch closes."""
        plan = self.scenario.epoch
        elements = -(-(plan.stop - share.base - share.index) // share.count)
        return max(1, elements - start) if plan.is_endless else None

    def _left(self, consumer: Consumer, run: Run) -> None:
        """Let a consumer begin again, unless it has ended or another is in its place."""
        if consumer.run is not run:
            return
        if is_replaced(run):
            self._replace(consumer)
        state, error = consumer.run.client.state, consumer.run.client.error
        again = isinstance(error, CancelledError) or is_replaced(consumer.run)
        if state == "crashed" or (state == "failed" and again):
            consumer.save(self._checkpoint(consumer))
            seconds = self.world.rng.uniform(0.0, BACK_SECONDS)
            self.world.after(seconds, partial(self._start, consumer))
        elif self._phase + 1 == len(self.scenario.phases):
            runs = [each.run for each in self._consumers]
            if all(each is not None and each.client.state != "reading" for each in runs):
                self._end()

    def _replace(self, consumer: Consumer) -> None:
        """Let an older client read in place of the newest, if the dispatcher has chosen it.

        It knows the order in which clients have registered, and not that in which they were
        started, if it was away or has forgotten them.
        """
        for run in self.runs:
            if run.consumer is consumer and (run.is_over or run.client.state == "reading"):
                consumer.run, consumer.saved = run, run.before.copy()

    def _end(self) -> None:
        for consumer in self._consumers:
            consumer.save(consumer.position)
        self._keep()
        self._consumers = []
        self.is_over = True

    # ── workers ───────────────────────────────────────────────────────────────────────────────────
    def start_worker(self, number: int, address: str) -> None:
        super().start_worker(number, address)
        worker = self.workers[-1]
        worker.died = partial(self._worker_died, number, worker)
        self._disturb(1.5 * self.scenario.epoch.opening)

    def _worker_died(
        self, number: int, worker: SimWorker, calls: dict[int, list[CallRange]], alone: int
    ) -> None:
        """End a worker whose function ended its process; its supervisor starts it again."""
        rng, identity = self.world.rng, worker.identity
        is_draining = worker.is_draining
        worker.crash()
        self._disturb(RESTART_SECONDS)
        if identity is not None:
            report = partial(self.dispatcher.report_death, identity, calls, alone)
            self.world.after(rng.uniform(0.0, RESTART_SECONDS), report)
        if not is_draining:
            # Another address than that of any other successor.
            address = worker.address if rng.random() < 0.5 else f"{worker.address}r"
            seconds = rng.uniform(0.05, RESTART_SECONDS)
            self.world.after(seconds, partial(self.start_worker, number, address))

    def _disturb(self, seconds: float = 0.0) -> None:
        """Note an event after which readers need time to go on, which has ended after `seconds`."""
        self.disturbed_at = max(self.disturbed_at, self.world.now + seconds)
