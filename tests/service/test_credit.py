"""How much workers may send ahead of the user."""

import pytest

from stoker.service.client.account import BYTES
from stoker.service.client.credit import BUFFER_BYTES, ELEMENTS, WORKERS, Metered, Windows
from stoker.service.client.pace import FIRST

MIB = 1 << 20


def _opened(windows: Windows, *task_ids: int) -> list[tuple[int, int]]:
    """What each is told first."""
    for task_id in task_ids:
        windows.opened(task_id)
    return [windows.credit(task_id, 0.0) for task_id in task_ids]


def _flow(windows: Windows, task_id: int, elements: int, seconds: float = 0.0) -> None:
    """So many come one by one, and the user takes each in so long."""
    for _ in range(elements):
        windows.received(task_id, 1, 0.0, 0.0)
        if windows.consumed(task_id, 1, 0, seconds, 0.0):
            windows.credit(task_id, 0.0)


def _ahead(windows: Windows, task_id: int, received: int) -> int:
    """How many may be under way when so many have come and all are taken."""
    return windows.credit(task_id, 0.0)[0] - received


def test_at_first_a_few_elements_may_come():
    assert _opened(Windows(), 1) == [(FIRST, BUFFER_BYTES // (4 * WORKERS))]


def test_a_window_moves_on_as_the_user_takes():
    windows = Windows()
    _opened(windows, 1)
    _flow(windows, 1, 2000, seconds=0.001)
    assert _ahead(windows, 1, 2000) == pytest.approx(100, abs=2)


def test_what_is_granted_is_never_taken_back():
    windows = Windows()
    _opened(windows, 1)
    _flow(windows, 1, 2000, seconds=1e-4)
    granted, _ = windows.credit(1, 0.0)
    windows.received(1, 10, 0.0, 0.0)
    windows.consumed(1, 10, 0, 60.0, 0.0)
    assert windows.credit(1, 0.0)[0] == granted


def test_a_user_as_fast_as_can_be_has_full_frames():
    windows = Windows()
    _opened(windows, 1)
    _flow(windows, 1, ELEMENTS // 2)
    assert _ahead(windows, 1, ELEMENTS // 2) == ELEMENTS


def test_what_is_held_counts_on_a_new_connection():
    windows = Windows()
    _opened(windows, 1)
    _flow(windows, 1, 2000, seconds=0.001)
    windows.received(1, 60, 0.0, 0.0)
    windows.gone(1)
    windows.opened(1)
    assert windows.credit(1, 0.0)[0] == pytest.approx(40, abs=2)


def test_the_user_is_told_of_as_due_after_a_quarter_of_the_window_or_of_the_bytes():
    windows = Windows(8 * MIB)
    _opened(windows, 1)
    _flow(windows, 1, 2000, seconds=0.001)  # a window of 100
    windows.credit(1, 0.0)
    windows.received(1, 100, 0.0, 0.0)
    assert windows.consumed(1, 20, 1000, 0.02, 0.0) == []
    assert windows.consumed(1, 6, 1000, 0.006, 0.0) == [1]
    windows.credit(1, 0.0)
    assert windows.consumed(1, 1, 2 * MIB, 0.001, 0.0) == [1]


def test_workers_share_the_window_and_who_supplies_has_most_of_it():
    windows = Windows()
    _opened(windows, 1, 2)
    _flow(windows, 1, 4000, seconds=0.001)
    one, other = _ahead(windows, 1, 4000), _ahead(windows, 2, 0)
    assert one + other == pytest.approx(100, abs=3)
    assert one == pytest.approx(75, abs=3)


def test_a_worker_at_its_end_leaves_its_share_to_the_others_until_it_has_something_again():
    windows = Windows()
    _opened(windows, 1, 2)
    _flow(windows, 2, 10)
    windows.ended(2)
    _flow(windows, 1, 4000, seconds=0.001)
    assert _ahead(windows, 1, 4000) == pytest.approx(100, abs=3)
    windows.received(2, 1, 0.0, 0.0)
    assert windows.credit(1, 0.0)[1] < BUFFER_BYTES


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────
def test_who_supplies_has_the_bytes_and_one_worker_has_at_most_its_most():
    windows = Windows()
    _opened(windows, 1, 2)
    _flow(windows, 1, 100)
    assert windows.credit(1, 0.0)[1] == BYTES
    assert windows.credit(2, 0.0)[1] == BUFFER_BYTES // (4 * WORKERS)


def test_bytes_are_promised_once_even_while_a_worker_has_not_heard_that_it_has_less():
    windows = Windows(8 * MIB)
    even = 8 * MIB // (4 * WORKERS)
    _opened(windows, 1, 2)
    _flow(windows, 1, 100, seconds=0.1)
    assert windows.credit(1, 0.0)[1] == 6 * MIB + even
    sent = 100
    for _ in range(300):
        windows.received(2, 1, 0.0, 0.0)
        windows.consumed(2, 1, 0, 0.1, 0.0)
        assert windows.credit(2, 0.0)[1] == even  # worker 1 may be about to send what it may
    windows.credit(1, 0.0)  # less: the other supplies more now
    assert windows.credit(2, 0.0)[1] == even
    windows.received(1, windows.credit(1, 0.0)[0] - sent, 0.0, 0.0)
    assert windows.credit(2, 0.0)[1] == even
    windows.consumed(1, 1, 0, 0.1, 0.0)
    windows.credit(1, 0.0)
    windows.received(1, 1, 0.0, 0.0)  # beyond what it was told before, so it has heard
    assert windows.credit(2, 0.0)[1] > MIB
    assert windows.reserved <= 8 * MIB


def test_a_worker_that_is_gone_keeps_bytes_for_what_has_come_only_until_it_is_taken():
    windows = Windows(8 * MIB)
    _opened(windows, 1)
    _flow(windows, 1, 100)
    windows.credit(1, 0.0)
    windows.received(1, 2, 0.0, 0.0)
    windows.gone(1)
    assert windows.reserved > 6 * MIB
    windows.consumed(1, 2, 0, 0.0, 0.0)
    assert windows.reserved == 0


def test_many_workers_that_never_send_do_not_add_up():
    windows = Windows(8 * MIB)
    _opened(windows, *range(WORKERS))
    for _ in range(3):
        for task_id in range(WORKERS):
            windows.credit(task_id, 0.0)
    assert windows.reserved <= 2 * MIB


# ── max_outstanding_requests ─────────────────────────────────────────────────────────────────────
def _granted(windows: Windows, task_id: int) -> int:
    return windows.credit(task_id, 0.0)[0]


def test_metered_credit_is_given_only_for_what_is_ready():
    windows = Metered(4)
    windows.opened(1)
    assert _granted(windows, 1) == 0
    assert windows.ready(1, 3, 0) == [1]
    assert _granted(windows, 1) == 3


def test_the_limit_holds_over_all_tasks_and_what_is_taken_goes_to_who_waits():
    windows = Metered(4)
    assert windows.ready(1, 3, 0) == [1]
    assert windows.ready(2, 3, 0) == [2]
    assert (_granted(windows, 1), _granted(windows, 2)) == (3, 1)
    assert windows.ready(3, 1, 0) == []
    windows.received(1, 3, 0.0, 0.0)
    assert windows.consumed(1, 2, 0, 0.0, 0.0) == [3, 1]
    assert _granted(windows, 3) == 1


def test_who_has_waited_longest_is_served_first():
    windows = Metered(1)
    windows.ready(1, 1, 0)
    windows.ready(2, 5, 0)
    windows.ready(3, 5, 0)
    windows.received(1, 1, 0.0, 0.0)
    assert windows.consumed(1, 1, 0, 0.0, 0.0) == [2, 1]


def test_the_order_decides_which_task_gets_credit_first():
    windows = Metered(1, needed_first=max)
    windows.ready(1, 1, 0)
    windows.ready(2, 5, 0)
    windows.ready(3, 5, 0)
    windows.received(1, 1, 0.0, 0.0)
    assert windows.consumed(1, 1, 0, 0.0, 0.0) == [3, 1]


def test_credit_is_kept_for_a_task_that_is_needed_before_those_that_wait():
    windows = Metered(1, needed_first=lambda tasks: 2 if 2 in tasks else None)
    assert windows.ready(1, 1, 0) == []
    assert windows.ready(2, 1, 0) == [2]


def test_credit_a_worker_returns_goes_to_another():
    windows = Metered(2)
    windows.ready(1, 2, 0)
    windows.ready(2, 2, 0)
    assert windows.ready(1, 0, 2) == [2]
    assert (_granted(windows, 1), _granted(windows, 2)) == (2, 2)


def test_a_broken_connection_holds_nothing_but_what_has_come():
    windows = Metered(3)
    windows.ready(1, 3, 0)
    windows.received(1, 1, 0.0, 0.0)
    windows.ready(2, 5, 0)
    assert windows.gone(1) == [2]
    assert _granted(windows, 2) == 2
    windows.consumed(1, 1, 0, 0.0, 0.0)
    assert windows.ready(2, 3, 0) == [2]
    assert _granted(windows, 2) == 3
