"""How much workers may send ahead of the user."""

from stoker.service.client.credit import ELEMENTS, Metered, Windows


def test_a_window_moves_on_as_the_user_takes():
    windows = Windows()
    windows.opened(1)
    windows.received(1, 100)
    assert windows.granted(1) == ELEMENTS
    windows.consumed(1, 60)
    assert windows.granted(1) == ELEMENTS + 60


def test_what_is_held_counts_on_a_new_connection():
    windows = Windows()
    windows.opened(1)
    windows.received(1, 100)
    windows.consumed(1, 60)
    windows.opened(1)
    assert windows.granted(1) == ELEMENTS - 40


def test_metered_credit_is_given_only_for_what_is_ready():
    windows = Metered(4)
    windows.opened(1)
    assert windows.granted(1) == 0
    assert windows.ready(1, 3, 0) == [1]
    assert windows.granted(1) == 3


def test_the_limit_holds_over_all_tasks_and_what_is_taken_goes_to_who_waits():
    windows = Metered(4)
    assert windows.ready(1, 3, 0) == [1]
    assert windows.ready(2, 3, 0) == [2]
    assert (windows.granted(1), windows.granted(2)) == (3, 1)
    assert windows.ready(3, 1, 0) == []
    windows.received(1, 3)
    assert windows.consumed(1, 2) == [3]
    assert windows.granted(3) == 1


def test_who_has_waited_longest_is_served_first():
    windows = Metered(1)
    windows.ready(1, 1, 0)
    windows.ready(2, 5, 0)
    windows.ready(3, 5, 0)
    windows.received(1, 1)
    assert windows.consumed(1, 1) == [2]


def test_credit_a_worker_returns_goes_to_another():
    windows = Metered(2)
    windows.ready(1, 2, 0)
    windows.ready(2, 2, 0)
    assert windows.ready(1, 0, 2) == [2]
    assert (windows.granted(1), windows.granted(2)) == (2, 2)


def test_a_broken_connection_holds_nothing_but_what_has_come():
    windows = Metered(3)
    windows.ready(1, 3, 0)
    windows.received(1, 1)
    windows.ready(2, 5, 0)
    assert windows.gone(1) == [2]
    assert windows.granted(2) == 2
    windows.consumed(1, 1)
    assert windows.ready(2, 3, 0) == [2]
    assert windows.granted(2) == 3
