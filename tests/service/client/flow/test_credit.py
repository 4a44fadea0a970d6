"""Limits of the bytes and elements that workers may send ahead of the consumer."""

import pytest

from stoker.service.client.flow.credit import (
    BUFFER_BYTES,
    ELEMENTS,
    WORKERS,
    LimitedCredit,
    WindowedCredit,
)
from stoker.service.client.flow.flow_control import CONNECTION_BYTES
from stoker.service.client.flow.pace import FIRST

MIB = 1 << 20


def _connect(credit: WindowedCredit, *task_ids: int) -> list[tuple[int, int]]:
    """Connect the tasks; return the first credit of each."""
    for task_id in task_ids:
        credit.connected(task_id)
    return [credit.grant(task_id) for task_id in task_ids]


def _flow(credit: WindowedCredit, task_id: int, elements: int, seconds: float = 0.0) -> None:
    """Receive and consume elements one by one, with `seconds` of work on each."""
    for _ in range(elements):
        credit.received(task_id, 1, 0.0)
        if credit.consumed(task_id, 1, 0, seconds, 0.0):
            credit.grant(task_id)


def _ahead(credit: WindowedCredit, task_id: int, received: int) -> int:
    """Return how many may be in flight after `received` elements, all of them consumed."""
    return credit.grant(task_id)[0] - received


def test_at_first_a_few_elements_may_come():
    assert _connect(WindowedCredit(), 1) == [(FIRST, BUFFER_BYTES // (4 * WORKERS))]


def test_the_window_moves_on_as_elements_are_consumed():
    credit = WindowedCredit()
    _connect(credit, 1)
    _flow(credit, 1, 2000, seconds=0.001)
    assert _ahead(credit, 1, 2000) == pytest.approx(100, abs=2)


def test_a_task_that_is_left_takes_no_credit_of_the_others():
    credit = LimitedCredit(1)
    _connect(credit, 1, 2)
    assert credit.ready(1, 5, 0) == [1]
    credit.extend(1, 4)
    assert credit.grant(1)[0] == 4
    assert credit.ready(2, 1, 0) == [2]
    credit.received(1, 4, 0.0)
    credit.consumed(1, 4, 4, 0.0, 0.0)
    assert credit.disconnected(1) == []  # task 2 has the only credit
    assert credit.ready(2, 1, 0) == []


def test_granted_elements_are_never_revoked():
    credit = WindowedCredit()
    _connect(credit, 1)
    _flow(credit, 1, 2000, seconds=1e-4)
    granted, _ = credit.grant(1)
    credit.received(1, 10, 0.0)
    credit.consumed(1, 10, 0, 60.0, 0.0)
    assert credit.grant(1)[0] == granted


def test_the_fastest_consumer_gets_full_frames():
    credit = WindowedCredit()
    _connect(credit, 1)
    _flow(credit, 1, ELEMENTS // 2)
    assert _ahead(credit, 1, ELEMENTS // 2) == ELEMENTS


def test_buffered_elements_count_on_a_new_connection():
    credit = WindowedCredit()
    _connect(credit, 1)
    _flow(credit, 1, 2000, seconds=0.001)
    credit.received(1, 60, 0.0)
    credit.disconnected(1)
    credit.connected(1)
    assert credit.grant(1)[0] == pytest.approx(40, abs=2)


def test_credit_is_due_after_a_quarter_of_the_elements_or_bytes():
    credit = WindowedCredit(8 * MIB)
    _connect(credit, 1)
    _flow(credit, 1, 2000, seconds=0.001)  # a window of 100
    credit.grant(1)
    credit.received(1, 100, 0.0)
    assert credit.consumed(1, 20, 1000, 0.02, 0.0) == []
    assert credit.consumed(1, 6, 1000, 0.006, 0.0) == [1]
    credit.grant(1)
    assert credit.consumed(1, 1, 2 * MIB, 0.001, 0.0) == [1]


def test_workers_share_the_window_evenly():
    credit = WindowedCredit()
    _connect(credit, 1, 2)
    _flow(credit, 1, 4000, seconds=0.001)
    one, other = _ahead(credit, 1, 4000), _ahead(credit, 2, 0)
    assert one + other == pytest.approx(100, abs=3)
    assert one == pytest.approx(50, abs=3)


def test_a_worker_at_its_end_leaves_its_share_to_the_others():
    credit = WindowedCredit()
    _connect(credit, 1, 2)
    _flow(credit, 2, 10)
    credit.ended(2)
    _flow(credit, 1, 4000, seconds=0.001)
    assert _ahead(credit, 1, 4000) == pytest.approx(100, abs=3)
    credit.received(2, 1, 0.0)  # another client has given an element back
    _flow(credit, 1, 4000, seconds=0.001)
    assert _ahead(credit, 1, 8000) == pytest.approx(50, abs=3)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────
def test_a_worker_gets_bytes_once_it_has_sent_up_to_its_maximum():
    credit = WindowedCredit()
    _connect(credit, 1, 2)
    _flow(credit, 1, 100)
    assert credit.grant(1)[1] == CONNECTION_BYTES
    assert credit.grant(2)[1] == BUFFER_BYTES // (4 * WORKERS)


def _reserved(credit: WindowedCredit) -> int:
    """Return the bytes that may be in flight or buffered, over all workers."""
    return sum(flow.reserved for flow in credit._flows.values())


def test_bytes_are_granted_to_another_only_when_consumed():
    credit = WindowedCredit(8 * MIB)
    even = 8 * MIB // (4 * WORKERS)
    _connect(credit, 1, 2)
    _flow(credit, 1, 100, seconds=0.1)
    assert credit.grant(1)[1] == 6 * MIB + even
    credit.received(1, 4, 0.0)  # four elements of 1.5 MiB: all it was granted
    for _ in range(300):
        credit.received(2, 1, 0.0)
        credit.consumed(2, 1, 0, 0.1, 0.0)
        assert credit.grant(2)[1] == even
    for consumed in (1, 2):
        credit.consumed(1, 1, 3 * MIB // 2, 0.1, 0.0)
        assert credit.grant(2)[1] == even + (consumed - 1) * 3 * MIB // 2
        assert credit.grant(1)[1] == 3 * MIB + even  # half as many as it has in flight
        assert credit.grant(2)[1] == even + consumed * 3 * MIB // 2
        assert _reserved(credit) <= 8 * MIB
    credit.consumed(1, 1, 3 * MIB // 2, 0.1, 0.0)
    assert [credit.grant(1)[1], credit.grant(2)[1]] == [3 * MIB + even] * 2


def test_a_disconnected_worker_reserves_bytes_until_consumption():
    credit = WindowedCredit(8 * MIB)
    _connect(credit, 1)
    _flow(credit, 1, 100)
    credit.grant(1)
    credit.received(1, 2, 0.0)
    credit.disconnected(1)
    assert _reserved(credit) > 6 * MIB
    credit.consumed(1, 2, 0, 0.0, 0.0)
    assert _reserved(credit) == 0


def test_many_workers_that_never_send_do_not_add_up():
    credit = WindowedCredit(8 * MIB)
    _connect(credit, *range(WORKERS))
    for _ in range(3):
        for task_id in range(WORKERS):
            credit.grant(task_id)
    assert _reserved(credit) <= 2 * MIB


# ── max_outstanding_requests ─────────────────────────────────────────────────────────────────────
def _granted(credit: WindowedCredit, task_id: int) -> int:
    return credit.grant(task_id)[0]


def test_limited_credit_is_granted_only_for_ready_elements():
    credit = LimitedCredit(4)
    credit.connected(1)
    assert _granted(credit, 1) == 0
    assert credit.ready(1, 3, 0) == [1]
    assert _granted(credit, 1) == 3


def test_the_limit_holds_over_all_tasks():
    credit = LimitedCredit(4)
    assert credit.ready(1, 3, 0) == [1]
    assert credit.ready(2, 3, 0) == [2]
    assert (_granted(credit, 1), _granted(credit, 2)) == (3, 1)
    assert credit.ready(3, 1, 0) == []
    credit.received(1, 3, 0.0)
    assert credit.consumed(1, 2, 0, 0.0, 0.0) == [3, 1]
    assert _granted(credit, 3) == 1


def test_the_task_that_has_waited_longest_is_served_first():
    credit = LimitedCredit(1)
    credit.ready(1, 1, 0)
    credit.ready(2, 5, 0)
    credit.ready(3, 5, 0)
    credit.received(1, 1, 0.0)
    assert credit.consumed(1, 1, 0, 0.0, 0.0) == [2, 1]


def test_the_order_decides_which_task_gets_credit_first():
    credit = LimitedCredit(1, needed_first=lambda tasks, _: max(tasks))
    credit.ready(1, 1, 0)
    credit.ready(2, 5, 0)
    credit.ready(3, 5, 0)
    credit.received(1, 1, 0.0)
    assert credit.consumed(1, 1, 0, 0.0, 0.0) == [3, 1]


def test_credit_is_kept_for_a_task_that_is_needed_first():
    credit = LimitedCredit(1, needed_first=lambda tasks, _: 2 if 2 in tasks else None)
    assert credit.ready(1, 1, 0) == []
    assert credit.ready(2, 1, 0) == [2]


def test_credit_that_a_worker_returns_goes_to_another():
    credit = LimitedCredit(2)
    credit.ready(1, 2, 0)
    credit.ready(2, 2, 0)
    assert credit.ready(1, 0, 2) == [2]
    assert (_granted(credit, 1), _granted(credit, 2)) == (2, 2)


def test_a_lost_connection_keeps_credit_of_received_elements():
    credit = LimitedCredit(3)
    credit.ready(1, 3, 0)
    credit.received(1, 1, 0.0)
    credit.ready(2, 5, 0)
    assert credit.disconnected(1) == [2]
    assert _granted(credit, 2) == 2
    credit.consumed(1, 1, 0, 0.0, 0.0)
    assert credit.ready(2, 3, 0) == [2]
    assert _granted(credit, 2) == 3


def test_gradual_credit_begins_with_the_first_read():
    credit = WindowedCredit(gradual=True)
    assert [elements for elements, _ in _connect(credit, 1, 2)] == [0, 0]
    assert credit.begin() == [1, 2]
    assert [credit.grant(task)[0] for task in (1, 2)] == [1, 1]
    assert credit.begin() == []


def test_gradual_limited_credit_begins_with_the_first_read():
    credit = LimitedCredit(2, gradual=True)
    _connect(credit, 1)
    assert credit.ready(1, 5, 0) == []
    assert credit.begin() == [1]
    assert credit.grant(1)[0] == 2
