"""AUTOTUNE's decisions, on simulated calls."""

from collections.abc import Callable

import pytest

from stoker.dataset.threads.meter import Cost
from stoker.dataset.threads.tuning import Tuning, default_bytes, smallest_window

MIB = 1 << 20


def tuned(cores: int = 2, most: int = 128, max_bytes: int = 256 * MIB, size: int = 1) -> Tuning:
    tuning = Tuning(cores=cores, most=most, max_bytes=max_bytes, size=size)
    tuning.begin(0.0)
    return tuning


class Calls:
    """Calls that finish one after the other, as many a second as `throughput(limit)` says."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.now = 0.0
        self.limits = [tuning.limit]

    def finish(
        self,
        calls: int,
        throughput: Callable[[int], float],
        busy: Callable[[int], float],
        *,
        queued: Callable[[int], float] = lambda _: 0.0,
        starved: bool = True,
        supplied: bool = True,
    ) -> int:
        """Let `calls` finish; returns the limit then.

        Args:
            calls: how many.
            throughput: a second, by the limit.
            busy: how many cores they keep busy.
            queued: how many of them are in the queue for a core.
            starved: whether the consumer waits for them.
            supplied: whether others wait for their threads.
        """
        tuning = self.tuning
        for _ in range(calls):
            limit = tuning.limit
            between = 1 / throughput(limit)
            if starved:
                tuning.consumer_waits(self.now)
            self.now += between
            if starved:
                tuning.consumer_goes_on(self.now)
            cost = Cost(limit * between, busy(limit) * between, queued(limit) * between)
            if tuning.finished(self.now, cost, supplied=supplied):
                self.limits.append(tuning.limit)
        return tuning.limit


def waiting(limit: int) -> float:
    """Of calls that wait 10 ms each."""
    return limit / 10e-3


def idle(_: int) -> float:
    return 0.01


def test_calls_that_wait_get_as_many_threads_as_there_may_be() -> None:
    assert Calls(tuned()).finish(2_000, waiting, idle) == 128
    assert Calls(tuned(most=40)).finish(2_000, waiting, idle) == 40


def test_the_limit_rises_in_few_steps_where_calls_only_wait() -> None:
    calls = Calls(tuned())
    calls.finish(2_000, waiting, idle)
    assert calls.limits == [2, 8, 32, 128]
    assert calls.now < 0.5


def test_calls_that_need_a_core_get_as_many_threads_as_there_are_cores() -> None:
    calls = Calls(tuned(cores=4))
    calls.finish(40_000, lambda limit: 1000.0 * min(limit, 4), lambda limit: min(limit, 4))
    assert set(calls.limits) == {4}  # fewer could gain nothing, so they are not tried


def test_waiting_for_a_core_is_no_reason_for_more_threads() -> None:
    """As where other processes use the cores too: each thread has one half of the time."""
    calls = Calls(tuned())
    calls.finish(5_000, lambda limit: 500.0 * limit, lambda _: 1.0, queued=lambda _: 1.0)
    assert set(calls.limits) == {2}


def test_a_limit_beyond_which_nothing_is_gained_is_kept() -> None:
    calls = Calls(tuned())
    calls.finish(20_000, lambda limit: waiting(min(limit, 20)), idle)
    trials = len(calls.limits)
    calls.finish(100_000, lambda limit: waiting(min(limit, 20)), idle)
    settled = calls.limits[trials:]
    assert set(settled) == {32, 64}  # 64 on trial
    assert len(settled) <= 60  # of some 1,500 measurements


def hindered(limit: int) -> float:
    """Of calls that wait for each other, as at the interpreter's lock: the more, the slower."""
    return 1000.0 / (1 + limit / 8)


@pytest.mark.parametrize("cores", [1.0, 2.0])
def test_calls_that_hinder_each_other_get_one_thread(cores: float) -> None:
    calls = Calls(tuned(cores=8))
    calls.finish(5_000, hindered, lambda limit: min(limit, cores))
    begun = len(calls.limits)
    calls.finish(3_000, hindered, lambda limit: min(limit, cores))
    assert set(calls.limits[begun:]) == {1, 2}  # 2 on trial


def test_threads_come_back_once_they_pay() -> None:
    calls = Calls(tuned(cores=8))
    calls.finish(5_000, hindered, lambda _: 1.0)
    limit = calls.finish(5_000, lambda limit: 1000.0 * min(limit, 8), lambda limit: min(limit, 8))
    assert limit == 8


def test_nothing_is_tried_while_the_consumer_is_slow() -> None:
    calls = Calls(tuned())
    calls.finish(5_000, waiting, idle, starved=False)
    assert calls.limits == [2]


def test_nothing_is_tried_while_the_input_is_slow() -> None:
    calls = Calls(tuned())
    calls.finish(5_000, waiting, idle, supplied=False)
    assert calls.limits == [2]


def test_one_thread_alone_is_better_where_it_would_yield_more() -> None:
    calls = Calls(tuned())
    assert not calls.tuning.outpaced_by(1e-9)  # nothing is known yet
    calls.finish(2_000, lambda _: 500.0, lambda _: 1.8)
    assert calls.tuning.outpaced_by(1 / 600)
    assert not calls.tuning.outpaced_by(1 / 400)


@pytest.mark.parametrize("reason", ["starved", "supplied"])
def test_a_slow_consumer_or_input_says_nothing_about_one_thread_alone(reason: str) -> None:
    calls = Calls(tuned())
    calls.finish(2_000, lambda _: 500.0, lambda _: 1.8)
    starved, supplied = reason != "starved", reason != "supplied"
    calls.finish(2_000, lambda _: 500.0, lambda _: 1.8, starved=starved, supplied=supplied)
    assert not calls.tuning.outpaced_by(1 / 600)


def test_nothing_is_decided_before_a_slow_call_could_finish() -> None:
    tuning = tuned()
    tuning.consumer_waits(0.0)
    tuning.finished(1.0, Cost(1.0, 0.0), supplied=True)  # a call may take a second
    for call in range(100):
        assert not tuning.finished(1.0 + call * 5e-3, Cost(5e-3, 0.0), supplied=True)
    assert tuning.limit == 2


def test_a_call_of_a_minute_does_not_stop_the_tuning() -> None:
    calls = Calls(tuned())
    calls.tuning.finished(60.0, Cost(60.0, 0.0), supplied=True)
    calls.now = 60.0
    assert calls.finish(5_000, waiting, idle) == 128


def test_the_window_follows_the_limit() -> None:
    calls = Calls(tuned())
    assert calls.tuning.window == smallest_window(2, 1) == 6
    calls.finish(2_000, waiting, idle)
    assert calls.tuning.window == smallest_window(128, 1) == 256


def test_the_window_doubles_behind_a_slow_call_up_to_a_bound() -> None:
    tuning = tuned()
    tuning.ran_dry()
    assert tuning.window == 12
    for _ in range(20):
        tuning.ran_dry()
    assert tuning.window == 4096


def test_the_window_does_not_widen_over_large_results() -> None:
    tuning = tuned(max_bytes=256 * MIB)
    tuning.holds(4 * MIB)
    for _ in range(20):
        tuning.ran_dry()
    assert tuning.window == 12


def test_a_batch_longer_than_the_widest_window_keeps_two() -> None:
    tuning = tuned(size=10_000)
    assert tuning.window == 20_000
    tuning.ran_dry()
    assert tuning.window == 20_000


@pytest.mark.parametrize(
    ("pending", "held", "affordable"), [(0, 0, 32), (10, 0, 22), (10, 80 * MIB, 12), (32, 0, 0)]
)
def test_what_is_pending_counts_as_much_as_calls_took_before(
    pending: int, held: int, affordable: int
) -> None:
    tuning = tuned(max_bytes=256 * MIB)
    tuning.holds(8 * MIB)
    assert tuning.affordable(pending, held) == affordable


def test_before_the_first_result_there_is_one_call_a_thread() -> None:
    tuning = tuned(cores=4)
    assert tuning.affordable(0, 0) == 4
    assert tuning.affordable(4, 0) == 0


def test_the_default_budget_leaves_no_core_of_many_idle() -> None:
    assert default_bytes(2) == 256 * MIB
    assert default_bytes(64) == 2048 * MIB


def test_the_queue_for_a_core_is_asked_about_only_where_calls_lack_one() -> None:
    calls = Calls(tuned())
    assert calls.tuning.wants_queued(calls.now)
    calls.finish(1_000, lambda limit: 500.0 * limit, lambda limit: 0.9 * limit)
    assert not calls.tuning.wants_queued(calls.now + 1)
    calls.finish(1_000, lambda limit: 500.0 * limit, lambda limit: 0.5 * limit)
    assert calls.tuning.wants_queued(calls.now + 1)


def test_nothing_is_tried_where_it_is_not_known_what_calls_waited_for() -> None:
    tuning = tuned()
    for call in range(2_000):
        tuning.consumer_waits(call * 1e-3)
        tuning.consumer_goes_on((call + 1) * 1e-3)
        assert not tuning.finished((call + 1) * 1e-3, Cost(2e-3, 0.5e-3), supplied=True)
    assert tuning.limit == 2
