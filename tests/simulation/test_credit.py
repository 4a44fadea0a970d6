"""How elements are shared and how much is buffered where, on a simulated clock."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from stoker.service.client.flow.credit import BUFFER_BYTES
from stoker.service.client.flow.flow_control import CONNECTION_BYTES
from tests.simulation.dataplane import Client, Wire, Worker, world

MIB = 1 << 20
LOCAL = Wire(delay=0.0001, width=5e9)
FAR = Wire(delay=0.025, width=1e9)


class Stage:
    """Workers and clients of one job, run to the end or for a limited time."""

    def __init__(
        self,
        workers: int = 1,
        count: int = 20_000,
        *,
        nbytes: Callable[[int], int] = lambda k: 32,
        worker_seconds: Sequence[float] | float = 1e-6,
        buffer_bytes: int = 64 * MIB,
    ) -> None:
        self.world = world()
        self.nbytes = nbytes
        times = [worker_seconds] * workers if isinstance(worker_seconds, float) else worker_seconds
        self.workers = [
            Worker(
                self.world, 100 + k, range(k * count, (k + 1) * count), time, nbytes, buffer_bytes
            )
            for k, time in enumerate(times)
        ]
        self.clients: list[Client] = []

    def add(
        self,
        seconds: Callable[[int], float] | float,
        wire: Wire = LOCAL,
        buffer_bytes: int = BUFFER_BYTES,
        max_outstanding_requests: int | None = None,
    ) -> Client:
        """Add a client whose consumer works `seconds` on each element."""
        work = (lambda k: seconds) if isinstance(seconds, float) else seconds
        number = 1 + len(self.clients)
        client = Client(
            self.world,
            number,
            self.workers,
            work,
            self.nbytes,
            wire,
            buffer_bytes,
            max_outstanding_requests,
        )
        self.clients.append(client)
        return client

    def run(self, until: float = 1000.0) -> bool:
        """Run to the end; return whether all clients reached it in time."""
        return self.world.run(lambda: all(x.ended is not None for x in self.clients), until)

    def run_to(self, client: Client, taken: int) -> None:
        """Run until the client has consumed `taken` elements."""
        assert self.world.run(lambda: len(client.taken) >= taken, 1000.0)


# ── shares ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("workers", [1, 2])
def test_two_clients_share_a_job_evenly_and_buffer_little(workers):
    """Two workers share the job's elements (DYNAMIC), or one yields them all (OFF)."""
    stage = Stage(workers, 100_000 // workers)
    for seconds in (1 / 5000, 1 / 5000):
        stage.add(seconds)
    assert stage.world.run(lambda: all(w.exhausted_at is not None for w in stage.workers), 100)
    assert stage.world.run(lambda: not any(w.task.buffer.waiting(0) for w in stage.workers), 100)
    buffered_seconds = [client.outstanding / 5000 for client in stage.clients]
    assert max(buffered_seconds) <= 0.12
    assert stage.run()
    for client in stage.clients:
        assert 0.4 <= len(client.taken) / 100_000 <= 0.6
        assert client.waited < 0.01 * 10
    assert Counter(x for c in stage.clients for x in c.taken) == Counter(range(100_000))


def test_a_fast_and_a_slow_client_end_together():
    stage = Stage(count=50_000)
    fast, slow = stage.add(1 / 9000), stage.add(1 / 1000)
    assert stage.run()
    assert len(fast.taken) == pytest.approx(45_000, rel=0.02)
    assert fast.ended is not None
    assert slow.ended == pytest.approx(fast.ended, abs=0.2)


def test_a_paused_client_buffers_a_tenth_of_a_second():
    stage = Stage(count=50_000)
    fast = stage.add(1e-5)
    paused = stage.add(lambda k: 500.0 if k == 2_000 else 1e-4)
    assert stage.world.run(lambda: fast.ended is not None or stage.world.now > 100, 200)
    current = 250  # the chunk in which its consumer pauses
    assert len(fast.taken) >= 50_000 - 2_000 - 1_100 - current
    assert fast.waited < 0.02
    assert paused.outstanding <= 1_100


def test_shares_of_slow_workers_do_not_limit_a_fast_one():
    slow, fast = [1.0] * 7, [1e-5]
    stage = Stage(8, 20_000, worker_seconds=[*slow, *fast])
    client = stage.add(1e-4)
    stage.run_to(client, 19_000)
    assert client.began is not None
    assert stage.world.now - client.began == pytest.approx(1.9, rel=0.05)


def test_a_client_on_a_slow_link_does_not_hoard_elements():
    stage = Stage(count=20_000, nbytes=lambda k: 10_000)
    fast = stage.add(1 / 5000, Wire(0.0005, 1e9))
    slow = stage.add(1 / 5000, Wire(0.0005, 10e6))  # 1,000 elements/s arrive
    assert stage.run()
    assert fast.ended is not None
    assert slow.ended is not None
    assert slow.ended - fast.ended < 1.0


# ── links ────────────────────────────────────────────────────────────────────────────────────────
def test_a_distant_worker_supplies_a_fast_consumer():
    stage = Stage(count=20_000, nbytes=lambda k: 10_000)
    client = stage.add(1 / 20_000, FAR)  # 200 MB/s, 50 ms away
    stage.run_to(client, 5_000)
    began, waited = stage.world.now, client.waited
    assert stage.run()
    assert client.waited - waited < 0.02 * (stage.world.now - began)


def test_a_link_of_high_latency_is_filled():
    stage = Stage(count=3_000, nbytes=lambda k: 300_000)
    client = stage.add(1e-5, Wire(0.025, 0.5e9))
    stage.run_to(client, 300)
    began = stage.world.now
    assert stage.run()
    assert 2_700 * 300_000 / (stage.world.now - began) > 0.9 * 0.5e9


def test_a_consumer_300_ms_away_waits_little():
    stage = Stage(count=40_000)
    client = stage.add(1 / 2500, Wire(0.15, 1e9))  # a round trip: three windows at first
    stage.run_to(client, 15_000)
    began, waited = stage.world.now, client.waited
    assert stage.run()
    assert client.waited - waited < 0.03 * (stage.world.now - began)


def test_a_consumer_of_batches_50_ms_away_waits_little():
    stage = Stage(count=64 * 120)
    client = stage.add(lambda k: 1.0 if k % 64 == 63 else 1e-5, FAR)
    stage.run_to(client, 64 * 20)
    began, waited = stage.world.now, client.waited
    assert stage.run()
    assert client.waited - waited < 0.06 * (stage.world.now - began)
    assert max(client.frames) <= 64


def test_a_long_first_step_does_not_slow_a_fast_consumer():
    stage = Stage(count=300_000, worker_seconds=1e-7)
    client = stage.add(lambda k: 60.0 if k == 0 else 1e-6)
    assert stage.run()
    assert client.waited < 0.03
    assert max(client.frames) == 8192


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────
def test_huge_elements_come_one_at_a_time():
    stage = Stage(count=20, nbytes=lambda k: 100 * MIB)
    client = stage.add(0.1)
    assert stage.run()
    assert len(client.taken) == 20
    assert client.most_bytes <= 100 * MIB
    assert stage.workers[0].most_bytes <= (100 + 100) * MIB


def test_elements_of_all_sizes_stay_within_the_byte_bounds():
    sizes = [100, 5 * MIB, 40, 3, 900_000, 64, 2 * MIB]
    stage = Stage(2, 700, nbytes=lambda k: sizes[k % 7], buffer_bytes=16 * MIB)
    client = stage.add(0.001, buffer_bytes=8 * MIB)
    assert stage.run()
    assert len(client.taken) == 1400
    assert client.most_bytes <= (8 + 2 * 5) * MIB
    assert all(worker.most_bytes <= (16 + 5 + 8 + 5) * MIB for worker in stage.workers)


@pytest.mark.parametrize("seconds", [1e-7, 0.01])
def test_tiny_elements_stay_within_the_byte_bounds(seconds):
    stage = Stage(count=1_000_000, worker_seconds=1e-7)
    client = stage.add(seconds, buffer_bytes=MIB)
    assert stage.run(until=5.0) is (seconds == 1e-7)
    assert client.most_bytes <= MIB + 32
    assert stage.workers[0].most_bytes <= 131_072 * 32 + MIB + 32 + 8192 * 32


def test_a_slow_consumer_buffers_little():
    stage = Stage(count=1_000, nbytes=lambda k: MIB, buffer_bytes=16 * MIB)
    client = stage.add(1.0)
    stage.run(until=100.0)
    assert len(client.taken) in (100, 101)
    assert client.waited < 0.1
    assert client.most_bytes <= 4 * MIB
    assert stage.workers[0].most_bytes <= (16 + 1 + 4) * MIB


@pytest.mark.parametrize("workers", [4, 16, 64])
def test_many_workers_together_stay_within_buffer_bytes(workers):
    stage = Stage(workers, 6400 // workers, nbytes=lambda k: MIB // 2)
    client = stage.add(0.0, buffer_bytes=64 * MIB)
    assert stage.run()
    assert len(client.taken) == 6400
    assert client.most_bytes <= (64 + workers / 2) * MIB


def test_one_worker_stays_within_connection_bytes():
    stage = Stage(1, 400, nbytes=lambda k: MIB, buffer_bytes=512 * MIB)
    client = stage.add(lambda k: 10.0 if k == 200 else 1e-4)
    assert stage.run()
    assert CONNECTION_BYTES * 3 // 4 <= client.most_bytes <= CONNECTION_BYTES + MIB


def test_max_outstanding_requests_holds_for_all_sizes():
    sizes = [100, 5 * MIB, 40]
    stage = Stage(3, 100, nbytes=lambda k: sizes[k % 3], buffer_bytes=8 * MIB)
    client = stage.add(0.001, max_outstanding_requests=4)
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, client.logic.consumption.outstanding)
        return client.ended is not None

    assert stage.world.run(ended, 1000.0)
    assert most == 4
    assert len(client.taken) == 300
