"""A simulated cluster: dispatcher, workers and clients on one clock and network."""

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.api.read_options import CrossTrainerCache, ReadOptions
from stoker.service.config import DispatcherConfig
from stoker.service.keys import KEY_BYTES
from tests.simulation.client import SimClient
from tests.simulation.disk import Disk
from tests.simulation.dispatcher import SimDispatcher
from tests.simulation.network import World
from tests.simulation.process import Process
from tests.simulation.scenario import CLIENT_LEASE, WORKER_LEASE, Scenario
from tests.simulation.shard_plan import file_sources
from tests.simulation.worker import SimWorker


class Cluster:
    """The processes of one run.

    Args:
        scenario: tells what takes part; it is started by the caller.
        rng: generates all delays.
        trace: receives the trace of messages and faults, if there is one.

    Attributes:
        broken: the number of connections that were broken.
        asked: the workers that an operator has asked to drain.
        dataset: the plan of the dataset, as pipelines need it.
    """

    def __init__(
        self, scenario: Scenario, rng: random.Random, trace: list[str] | None = None
    ) -> None:
        self.scenario = scenario
        self.world = World(rng, trace, scenario.peer_timeout)
        self.world.note(f"{scenario}")
        config = DispatcherConfig(
            worker_timeout_ms=round(WORKER_LEASE * 1000),
            client_timeout_ms=round(CLIENT_LEASE * 1000),
            peer_timeout_ms=round(scenario.peer_timeout * 1000),
            job_gc_check_interval_ms=500,
            job_gc_timeout_ms=round(scenario.kept_seconds * 1000),
            gc_dynamic_sharding_jobs=True,
            worker_addresses=["host"] * len(scenario.workers) if scenario.static else None,
        )
        commit = scenario.slowest_commit
        disk = None if commit is None else Disk(self.world, commit)
        self.dispatcher = SimDispatcher(self.world, config, scenario.tasks_per_client, disk)
        self.workers: list[SimWorker] = []
        self.clients: list[SimClient] = []
        self.broken = 0
        self.asked: list[SimWorker] = []
        self._by_address: dict[str, SimWorker] = {}
        self.dataset: Any = scenario.plan
        self._registration = self._register()
        if scenario.registered:
            assert isinstance(self.dispatcher.call_now(self._registration), m.DatasetRegistered)

    @property
    def all_left(self) -> bool:
        """True if all clients have joined and none reads."""
        return len(self.clients) >= len(self.scenario.clients) and all(
            client.state != "reading" for client in self.clients
        )

    @property
    def must_have_left(self) -> list[SimWorker]:
        """The workers that an operator has asked to drain, unless that was forgotten.

        It is forgotten by a dispatcher without a journal, and with a worker that was removed: as
        long as it has the only id that was asked, it was not.
        """
        if self.scenario.replaced:
            return []
        asked = self.dispatcher.asked_ids
        return [x for x in self.asked if x.ids <= asked and not x.refused]

    def start_worker(self, number: int, address: str) -> None:
        """Start a worker, or the successor of one."""
        host = f"W{number}"
        runs = sum(worker.process.host == host for worker in self.workers)
        worker = SimWorker(
            self.world,
            f"{host}{'b' * runs}",
            host,
            address,
            self.dispatcher,
            self.dataset,
            self.scenario.workers[number].seconds,
            self.scenario.buffer_bytes,
            self.scenario.cache_bytes,
        )
        self._by_address[address] = worker
        self.workers.append(worker)

    def worker_of(self, number: int) -> SimWorker | None:
        """Return the last worker that was started on a host."""
        host = f"W{number}"
        return next((x for x in reversed(self.workers) if x.process.host == host), None)

    def freeze(self, host: str, seconds: float) -> None:
        """Freeze the processes of a host."""
        for process in self._processes():
            if process.host == host:
                process.freeze(seconds)

    def _processes(self) -> list[Process]:
        workers = [worker.process for worker in self.workers]
        return [self.dispatcher.process, *workers, *(client.process for client in self.clients)]

    def start_client(self, number: int) -> None:
        """Start a client; the last, after those of the scenario, reads the rest."""
        scenario = self.scenario
        last = number >= len(scenario.clients)
        stop_after = scenario.clients[-1 if last else number].stop_after
        if last and scenario.cache_bytes is None:
            stop_after = None
        options = self._options(
            on_loss="raise" if number % 2 else "warn",  # the simulation reads on; the end waits
            cross_trainer_cache=self._trainer_of(number),
            **self._consumer(number),
        )
        self._add_client(f"C{number}", options, self._hello(options), stop_after=stop_after)

    def _options(self, **options: Any) -> ReadOptions:
        """Return the options of a client."""
        return ReadOptions(
            processing_mode=self.scenario.policy,
            dispatcher_address="sim",
            max_outstanding_requests=self.scenario.max_outstanding_requests,
            connect_timeout=30.0,
            job_name="job",
            **options,
        )

    def _hello(self, options: ReadOptions, **fields: Any) -> m.ClientHello:
        """Return the hello of a client."""
        hello = m.ClientHello(
            1,
            1,
            "sim",
            "job",
            options.job_parameters,
            (0,),
            named=True,
            key=self.world.rng.randbytes(KEY_BYTES),
            consumer_index=options.consumer_index,
            **fields,
        )
        if self.scenario.registered:
            return hello
        return msgspec.structs.replace(hello, dataset_id="", registration=self._registration)

    def _add_client(
        self, name: str, options: ReadOptions, hello: m.ClientHello, **arguments: Any
    ) -> SimClient:
        """Start a client; `arguments` as of `SimClient`."""
        arguments.setdefault("seconds", self.scenario.client_seconds)
        client = SimClient(
            self.world,
            name,
            self.dispatcher,
            self._by_address,
            hello,
            options,
            **arguments,
        )
        self.clients.append(client)
        return client

    def keep_step(
        self, client: SimClient, step: Callable[[], int], others: Callable[[], Iterable[int]]
    ) -> None:
        """Let a consumer wait after each step, until the steps of the others are not less."""

        def stepped() -> None:
            for other in self.clients:
                self.world.after(0, other.read_on)

        client.may_step = lambda: all(other >= step() for other in others())
        client.stepped = stepped

    def _consumer(self, number: int) -> dict[str, Any]:
        """Return the options of a consumer of a coordinated read; none of another client."""
        count = self.scenario.num_consumers
        return {"num_consumers": count, "consumer_index": number % count} if count else {}

    def _trainer_of(self, number: int) -> CrossTrainerCache | None:
        """Return the option of a client that names its trainer, if there is a cache."""
        if self.scenario.cache_bytes is None:
            return None
        return CrossTrainerCache(f"T{number % self.scenario.trainers}")

    def leftovers(self) -> list[str]:
        """Return the state that is held, as sentences."""
        state = self.dispatcher.logic.state
        held: dict[str, Collection[object]] = {
            "D clients": state.clients,
            "D tasks": state.tasks,
            "D iterations": state.iterations,
            "D jobs": state.jobs,
            "D waiting": self.dispatcher.logic.assigner.waiting,
        }
        for worker in self.workers:
            if worker.alive and not worker.refused:
                held[f"{worker.name} tasks"] = worker.logic.tasks
                held[f"{worker.name} connections"] = worker.logic.clients.opened
                held[f"{worker.name} pipelines"] = worker.pipelines
        for client in self.clients:
            if client.open_connections:
                held[f"{client.name} connections"] = [client.open_connections]
        return [f"{name}: {list(values)}" for name, values in held.items() if values]

    def _register(self) -> m.RegisterDataset:
        """Return the registration of the dataset."""
        plan = self.scenario.plan
        options = Options(finite_coordinated=self.scenario.num_consumers > 0)
        splits = {
            x.number: ListedSplits() if x.per_file else IndexSplits(x.count) for x in plan.sources
        }
        sources = [Source(number, "sim", "", how) for number, how in splits.items()]
        tree = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])
        spec = spec_to_wire(UnknownSpec())
        structure = structure_of(tree)
        return m.RegisterDataset(
            "digest",
            tree,
            spec,
            options,
            sources,
            dataset_id="sim",
            structure=structure,
            file_sources=file_sources(plan),
        )
