"""A client reads a deterministic epoch from model workers, by messages."""

import random

import pytest

from stoker.errors import UnavailableError
from stoker.service import messages as m
from stoker.service.client import actions as a
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.wire import frames as f
from tests.service.client.wants.scene import Scene


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("length", [0, 1, 7, 500])
def test_an_epoch_is_read_in_order(length: int, workers: int):
    scene = Scene(length, [0.001] * workers).run()
    assert scene.yielded == list(range(length))
    assert scene.ended is not None
    assert sum(len(x.computed) for x in scene.workers.values()) == length


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_consumer_reads_its_positions(index: int):
    share = EpochShare(index=index, count=3, base=10)
    assert Scene(50, [0.001] * 2, share=share).run().yielded == list(range(10 + index, 50, 3))


def test_a_short_last_step_is_left_out():
    share = EpochShare(index=0, count=3, together=3)
    assert Scene(50, [0.001] * 2, share=share).run().yielded == list(range(0, 48, 3))


@pytest.mark.parametrize("limit", [1, 2, 3, 16])
def test_few_outstanding_requests_are_enough_for_four_workers(limit: int):
    scene = Scene(100, [0.001] * 4, max_outstanding_requests=limit, consume=0.0005).run()
    assert scene.yielded == list(range(100))
    assert scene.most_outstanding <= limit


def test_errors_occupy_their_positions():
    fails = {0, 3, 4, 19}
    scene = Scene(20, [0.001] * 3, fails=fails).run()
    assert scene.yielded == [f"no {x}" if x in fails else x for x in range(20)]


def test_turns_of_a_lost_worker_are_asked_of_others_at_once():
    scene = Scene(400, [0.002] * 3).run(until=0.1)
    scene.lose(21)
    scene.run()
    assert scene.yielded == list(range(400))
    assert scene.longest_wait < 0.1
    [warning] = scene.warnings
    assert "Other workers compute what it had not delivered" in warning
    assert scene.client.losses.totals == {"tasks_lost": 0, "splits_lost": 0, "elements_lost": 0}


def test_a_worker_that_was_stopped_as_planned_causes_no_warning():
    scene = Scene(400, [0.002] * 3).run(until=0.1)
    scene.lose(21, m.STOPPED)
    assert scene.run().yielded == list(range(400))
    assert not scene.warnings


def test_a_broken_connection_asks_again():
    scene = Scene(400, [0.002] * 2).run(until=0.1)
    scene.break_connection(20)
    scene.run()
    assert scene.yielded == list(range(400))
    assert scene.longest_wait < 0.1


def test_a_frozen_worker_delays_for_little_more_than_a_second():
    scene = Scene(4000, [0.002] * 4).run(until=1.0)
    scene.workers[20].frozen = scene.workers[21].frozen = True
    scene.run(until=20.0)
    assert scene.ended is not None
    assert scene.yielded == list(range(4000))
    assert 1.0 <= scene.longest_wait < 1.5


def test_a_worker_that_goes_on_after_it_was_late_is_used_again():
    scene = Scene(40_000, [0.002] * 2).run(until=1.0)
    slow = scene.workers[20]
    slow.frozen = True
    scene.run(until=4.0)
    before = len(slow.computed)
    slow.thaw()
    scene.run(until=10.0)
    assert len(slow.computed) > before + 2000
    assert scene.yielded == list(range(len(scene.yielded)))


def test_a_joining_worker_is_used():
    scene = Scene(4000, [0.002]).run(until=1.0)
    late = scene.add(0.002)
    scene.run()
    assert scene.yielded == list(range(4000))
    assert len(late.computed) > 1500
    assert scene.longest_wait < 0.1


def test_a_left_task_is_answered_and_its_turns_move():
    scene = Scene(1000, [0.002] * 2).run(until=0.5)
    scene.tell(m.Tasks(leave={20: 40}))
    assert [x.task_id for x in scene.sent if isinstance(x, m.TaskLeft)] == [20]
    computed = len(scene.workers[20].computed)
    scene.run()
    assert scene.yielded == list(range(1000))
    assert len(scene.workers[20].computed) <= computed + 20
    assert scene.longest_wait < 0.2


def test_bytes_ahead_of_a_slow_reader_are_bounded():
    scene = Scene(300, [0.0005] * 3, nbytes=1 << 20, buffer_bytes=16 << 20, consume=0.005).run()
    assert scene.yielded == list(range(300))
    assert scene.most_outstanding <= 16 + 3
    assert max(x.most_unread for x in scene.workers.values()) <= (16 << 20) // 3 + (1 << 20)


def test_elements_larger_than_the_buffer_are_read():
    scene = Scene(20, [0.001] * 3, nbytes=1 << 20, buffer_bytes=100).run()
    assert scene.yielded == list(range(20))


def test_a_dispatcher_that_forgot_everything_admits_the_client_again():
    scene = Scene(1000, [0.002] * 2).run(until=0.5)
    scene.do(scene.client.session_lost(scene.now))
    scene.sent.clear()
    scene.do(scene.client.session_opened(scene.now))
    [hello] = scene.sent
    assert isinstance(hello, m.ClientHello)
    assert hello.registration == m.RegisterDataset("digest")
    scene.tell(m.DatasetUnknown())
    again = scene.sent[-1]
    assert isinstance(again, m.ClientHello)
    assert again.registration == m.RegisterDataset("digest", b"tree")
    scene.workers.clear()
    scene.tell(m.ClientWelcome(1, 7, 3, "other", 500, length=1000))
    scene.add(0.002, 20)
    scene.run()
    assert scene.yielded == list(range(1000))


def test_the_same_welcome_again_keeps_the_tasks():
    scene = Scene(1000, [0.002] * 2).run(until=0.5)
    scene.tell(m.ClientWelcome(1, 40, 30, "journal", 500, length=1000))
    scene.run()
    assert scene.yielded == list(range(1000))
    assert sum(len(x.computed) for x in scene.workers.values()) == 1000


def test_without_any_worker_the_read_fails_after_30_seconds():
    scene = Scene(10_000, [0.002]).run(until=0.5)
    scene.lose(20, "the process ended by signal 9")
    scene.run(until=29.0)
    assert scene.failed is None
    scene.run(until=32.0)
    assert isinstance(scene.failed, UnavailableError)
    assert "the process ended by signal 9" in str(scene.failed)
    assert scene.yielded == list(range(len(scene.yielded)))


def test_another_worker_within_30_seconds_goes_on():
    scene = Scene(1000, [0.002]).run(until=0.5)
    scene.lose(20)
    scene.run(until=29.0)
    scene.add(0.002)
    assert scene.run().yielded == list(range(1000))


def test_skipping_moves_the_start_and_skips_what_has_arrived():
    scene = Scene(100, [])
    assert scene.client.advance(30) == 30
    scene.add(0.001)
    scene.run(until=0.03)
    read = len(scene.yielded)
    assert scene.client.advance(5) == 5
    scene.run()
    assert scene.yielded == [*range(30, 30 + read), *range(35 + read, 100)]
    assert scene.client.advance(5) == 0
    assert scene.client.consumption.outstanding == 0


def test_the_position_is_the_next_of_the_epoch():
    share = EpochShare(index=1, count=3, base=10)
    scene = Scene(1000, [0.001] * 2, share=share).run(until=0.1)
    position = scene.client.position
    assert position == share.position(len(scene.yielded))


def test_a_close_gives_nothing_back():
    scene = Scene(1000, [0.001] * 2).run(until=0.1)
    actions = scene.client.close(0)
    scene.sent.clear()
    scene.do(actions)
    assert scene.sent == [m.ClientClose()]
    told = [x.message for x in actions if isinstance(x, a.ToWorker)]
    assert not any(isinstance(message, f.GiveBack) for message in told)


@pytest.mark.parametrize("seed", range(40))
def test_faults_in_any_order_lose_and_repeat_nothing(seed: int):
    rng = random.Random(seed)
    share = EpochShare(index=rng.randrange(2), count=2, base=rng.randrange(5))
    scene = Scene(
        2000,
        [rng.choice([0.001, 0.002, 0.02]) for _ in range(rng.randint(1, 4))],
        share=share,
        nbytes=rng.choice([10, 1000, 1 << 20]),
        consume=rng.choice([0.0, 0.001, 0.003]),
        max_outstanding_requests=rng.choice([None, None, 1, 7]),
        buffer_bytes=rng.choice([1, 8 << 20, 256 << 20]),
        fails={rng.randrange(2000) for _ in range(20)},
    )
    for _ in range(12):
        scene.run(until=scene.now + rng.uniform(0.0, 1.0))
        living = [x for x, y in scene.workers.items() if not scene.client.tasks.cursors[x].lost]
        number = rng.choice(living) if living else None
        fault = rng.choice(["lose", "break", "freeze", "thaw", "add"])
        if fault == "add" or number is None:
            scene.add(0.001)
        elif fault == "lose":
            scene.lose(number)
        elif fault == "break" and scene.client.tasks.cursors[number].open:
            scene.break_connection(number)
        elif fault == "freeze":
            scene.workers[number].frozen = True
        else:
            scene.workers[number].thaw()
    scene.add(0.001)
    scene.run(until=scene.now + 60)
    wanted = range(share.base + share.index, 2000, 2)
    assert scene.yielded == [f"no {x}" if x in scene.fails else x for x in wanted]
    assert scene.ended is not None
