"""AUTOTUNE's decisions, on simulated calls."""

from collections.abc import Callable

import pytest

from stoker.dataset.threads.tuning import CallReport, Tuning, default_bytes, least_ahead

MIB = 1 << 20


def tuned(cores: int = 2, most: int = 128, max_bytes: int = 256 * MIB, group: int = 1) -> Tuning:
    tuning = Tuning(cores=cores, most=most, max_bytes=max_bytes, group=group)
    tuning.begin(0.0)
    return tuning


class Calls:
    """Calls that finish one after the other, `throughput(limit)` per second."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.now = 0.0
        self.examined = 0
        self.limits = [tuning.limit]

    def finish(
        self,
        calls: int,
        throughput: Callable[[int], float],
        waiting: float,
        *,
        supplied: bool = True,
        awaited: bool = True,
        nbytes: int | None = 64,
    ) -> int:
        """Let `calls` finish and return the limit afterwards.

        Args:
            calls: how many.
            throughput: per second, by the limit.
            waiting: the share of its time for which a call waits for something but a core.
            supplied: other calls wait for a thread.
            awaited: the consumer waits for results.
            nbytes: of each.
        """
        for _ in range(calls):
            limit = self.tuning.limit
            seconds = limit / throughput(limit)
            self.now += seconds / limit
            wanted = self.tuning.wants_runnable()
            self.examined += wanted
            runnable = seconds * (1 - waiting) if wanted else None
            report = CallReport(self.now, seconds, runnable, nbytes, supplied, awaited)
            if self.tuning.finished(report):
                self.limits.append(self.tuning.limit)
        return self.tuning.limit


def sleeping(limit: int) -> float:
    """Throughput of calls that wait 10 ms each."""
    return limit / 10e-3


def on_cores(cores: int) -> Callable[[int], float]:
    """Throughput of calls that use a core for 2 ms each."""
    return lambda limit: 500.0 * min(limit, cores)


def test_calls_that_wait_get_the_most_threads_allowed() -> None:
    assert Calls(tuned()).finish(2_000, sleeping, 1.0) == 128
    assert Calls(tuned(most=40)).finish(2_000, sleeping, 1.0) == 40


def test_the_limit_rises_in_few_steps_where_calls_wait() -> None:
    calls = Calls(tuned())
    calls.finish(2_000, sleeping, 1.0)
    assert calls.limits == [2, 8, 32, 128]
    assert calls.now < 0.5


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_calls_that_use_cores_get_one_thread_per_core(cores: int) -> None:
    calls = Calls(tuned(cores=cores))
    calls.finish(40_000, on_cores(cores), 0.1)
    assert max(cores, 2) <= calls.tuning.limit <= max(cores / 0.9, 2)
    assert len(calls.limits) <= 3


def test_waiting_for_a_core_is_no_reason_for_more_threads() -> None:
    """On a busy machine more threads get more of the cores, and the throughput rises."""
    calls = Calls(tuned())
    calls.finish(5_000, lambda limit: 200.0 * limit, 0.0)
    assert calls.limits == [2]


def test_a_step_that_gains_too_little_is_undone() -> None:
    calls = Calls(tuned())
    calls.finish(20_000, lambda limit: sleeping(min(limit, 10)), 1.0)
    assert calls.tuning.limit == 8
    assert set(calls.limits) == {2, 8, 32}


def test_steps_in_vain_become_rare() -> None:
    calls = Calls(tuned())
    calls.finish(20_000, lambda limit: sleeping(min(limit, 10)), 1.0)
    steps = len(calls.limits)
    calls.finish(100_000, lambda limit: sleeping(min(limit, 10)), 1.0)
    assert len(calls.limits) - steps <= 200  # in some 5,000 measurements


def test_calls_that_wait_for_each_other_keep_two_threads() -> None:
    """As at the interpreter's lock, where more threads change nothing."""
    calls = Calls(tuned(cores=64))
    calls.finish(50_000, lambda _: 1000.0, 0.5)
    assert calls.tuning.limit == 2


def test_threads_are_added_once_they_pay() -> None:
    calls = Calls(tuned())
    calls.finish(5_000, lambda _: 1000.0, 0.99)
    assert calls.finish(20_000, sleeping, 0.99) == 128


def test_threads_are_added_while_cores_are_free() -> None:
    """Calls that use a core for an eighth of their time fill two cores with twelve threads."""
    calls = Calls(tuned(cores=2))
    assert calls.finish(20_000, sleeping, 0.875) == 12


def test_a_step_in_vain_is_undone_with_its_read_ahead() -> None:
    calls = Calls(tuned())
    calls.finish(20_000, lambda limit: sleeping(min(limit, 8)), 1.0)
    assert calls.tuning.read_ahead == least_ahead(8, 1)


@pytest.mark.parametrize("reason", ["supplied", "awaited"])
def test_nothing_is_tried_where_input_or_consumer_is_slow(reason: str) -> None:
    calls = Calls(tuned())
    calls.finish(5_000, sleeping, 1.0, supplied=reason != "supplied", awaited=reason != "awaited")
    assert calls.limits == [2]


def test_calls_are_examined_only_where_a_step_may_follow() -> None:
    calls = Calls(tuned())
    calls.finish(100_000, on_cores(2), 0.1)
    assert 0 < calls.examined < 2_000


def test_nothing_is_tried_before_calls_were_examined() -> None:
    tuning = tuned()
    for call in range(2_000):
        assert not tuning.finished(CallReport(call * 1e-3, 2e-3, None, 64, True, True))
    assert tuning.limit == 2


def test_reading_ahead_follows_the_limit() -> None:
    calls = Calls(tuned())
    assert calls.tuning.read_ahead == least_ahead(2, 1) == 6
    calls.finish(2_000, sleeping, 1.0)
    assert calls.tuning.read_ahead == least_ahead(128, 1) == 256


def test_reading_ahead_doubles_after_a_slow_call_up_to_a_bound() -> None:
    tuning = tuned()
    tuning.ran_dry(6)
    assert tuning.read_ahead == 12
    for _ in range(20):
        tuning.ran_dry(tuning.read_ahead)
    assert tuning.read_ahead == 4096


def test_batches_larger_than_the_bound_are_read_two_ahead() -> None:
    tuning = tuned(group=10_000)
    assert tuning.read_ahead == 20_000
    tuning.ran_dry(20_000)
    assert tuning.read_ahead == 20_000


def test_reading_goes_on_beyond_what_an_undone_step_read() -> None:
    tuning = tuned()
    tuning.ran_dry(100)
    assert tuning.read_ahead == 200


@pytest.mark.parametrize(
    ("pending", "buffered", "affordable"), [(0, 0, 32), (10, 0, 22), (10, 80 * MIB, 12), (32, 0, 0)]
)
def test_pending_calls_count_as_the_mean_of_finished_ones(
    pending: int, buffered: int, affordable: int
) -> None:
    calls = Calls(tuned(max_bytes=256 * MIB))
    calls.finish(1, sleeping, 1.0, nbytes=8 * MIB)
    assert calls.tuning.affordable(pending, buffered) == affordable


def test_failed_calls_do_not_change_the_mean_size() -> None:
    calls = Calls(tuned(max_bytes=256 * MIB))
    calls.finish(1, sleeping, 1.0, nbytes=8 * MIB)
    calls.finish(100, sleeping, 1.0, nbytes=None)
    assert calls.tuning.affordable(0, 0) == 32


def test_before_the_first_result_each_thread_has_one_call() -> None:
    tuning = tuned()
    assert tuning.affordable(0, 0) == 2
    assert tuning.affordable(2, 0) == 0


def test_the_default_bytes_suffice_for_many_cores() -> None:
    assert default_bytes(2) == 256 * MIB
    assert default_bytes(64) == 2048 * MIB
