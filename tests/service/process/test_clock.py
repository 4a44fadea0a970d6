import asyncio
import threading
import time

from stoker.service.control.control_loop import holding_control_loop, run_on
from stoker.service.process.clock import CLOCK
from tests.manual_clock import ManualClock
from tests.serving import DEADLINE, eventually


def test_the_clock_of_the_system_is_monotonic_time():
    before = time.monotonic()
    assert before <= CLOCK.now() <= time.monotonic()


def test_a_wait_ends_when_its_time_has_passed():
    clock, condition = ManualClock(), threading.Condition()
    ended = threading.Event()

    def wait() -> None:
        with condition:
            assert not clock.wait_for(condition, lambda: False, 10.0)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert eventually(lambda: clock._waits)
    clock.advance(9.0)
    assert not ended.is_set()
    clock.advance(1.0)
    thread.join(DEADLINE)
    assert ended.is_set()


def test_a_wait_ends_when_its_condition_holds():
    clock, condition = ManualClock(), threading.Condition()
    found: list[bool] = []

    def wait() -> None:
        with condition:
            found.append(clock.wait_for(condition, lambda: bool(found), 10.0))

    thread = threading.Thread(target=wait)
    thread.start()
    assert eventually(lambda: clock._waits)
    with condition:
        found.append(True)
        condition.notify_all()
    thread.join(DEADLINE)
    assert found == [True, True]


def test_timers_fire_in_order_and_see_their_own_time():
    clock = ManualClock()
    fired: list[float] = []

    async def sleep(seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(seconds)
            fired.append(clock.now() - began)

    began = clock.now()
    with holding_control_loop(clock) as loop:
        sleeps = [asyncio.run_coroutine_threadsafe(sleep(x), loop) for x in (2.0, 3.0)]
        clock.advance(8.5)
        assert fired == [2.0, 3.0, 4.0, 6.0, 6.0]
        clock.advance(0.5)
        assert fired == [2.0, 3.0, 4.0, 6.0, 6.0, 9.0]
        assert all(each.done() for each in sleeps)


def test_a_running_clock_passes_every_timeout():
    clock = ManualClock()

    async def wait() -> str:
        try:
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return ""

    with clock.running(), holding_control_loop(clock) as loop:
        assert run_on(loop, wait(), DEADLINE) == "timed out"
