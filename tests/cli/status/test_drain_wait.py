"""`stoker drain --wait`, with answers of a dispatcher by values."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stoker.cli.status import draining
from stoker.errors import StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service import status as st
from tests.cli.status.statuses import status, worker

ADDRESS = "host:1"

Wait = Callable[[Sequence[Any]], list[m.Request]]


@pytest.fixture(name="wait")
def fixture_wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """A function that drains and waits; it returns the requests; each poll takes a second."""

    def wait(answers: Sequence[Any]) -> list[m.Request]:
        left, asked, now = list(answers), list[m.Request](), [1000.0]

        def get_status(_: str) -> st.Status:
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            found: st.Status = answer
            return found

        def sleep(_: float) -> None:
            now[0] += 1.0

        monkeypatch.setattr(draining, "get_status", get_status)
        monkeypatch.setattr(draining, "ask", lambda _, request: asked.append(request))
        monkeypatch.setattr(draining, "request", lambda _, request: asked.append(request))
        monkeypatch.setattr("stoker.cli.status.draining.time.sleep", sleep)
        monkeypatch.setattr("stoker.cli.status.draining.time.monotonic", lambda: now[0])
        draining.drain_workers("localhost:5050", [ADDRESS], wait=True)
        assert not left
        return asked

    return wait


DRAINING = status([worker(draining=True)], [])
GONE = status([], [])
ONCE = [m.DrainWorker(ADDRESS)]


def test_worker_that_is_gone_has_left(wait: Wait, capsys: pytest.CaptureFixture[str]):
    assert wait([DRAINING, GONE]) == ONCE
    assert capsys.readouterr().out == "worker host:1 has left\n"


def test_worker_may_return_to_a_dispatcher_that_forgot_it(wait: Wait):
    def forgot(since: int, until: float, *workers: st.WorkerStatus) -> list[st.Status]:
        """Return the answers of a dispatcher that was started half a second after the request."""
        seconds = range(since, round(until))
        return [status([*workers], [], uptime=x - 0.5, journaled=False) for x in seconds]

    older = status([worker(draining=True)], [], journaled=False)
    away = forgot(1, 4)
    back = forgot(4, 5, worker())
    again = forgot(5, 10, worker(draining=True))
    gone = forgot(10, draining.RETURN_SECONDS + 2)
    assert wait([older, *away, *back, *again, *gone]) == ONCE * 2


def test_worker_that_left_a_journaled_dispatcher_is_gone_at_once(wait: Wait):
    assert wait([DRAINING, status([], [], uptime=0.1)]) == ONCE


def test_process_that_replaces_a_worker_is_not_drained(wait: Wait):
    before_its_heartbeat = status([worker(uptime=None)], [])
    serving = status([worker(uptime=0.5)], [])
    assert wait([DRAINING, before_its_heartbeat, serving]) == ONCE


def test_lost_worker_is_an_error(wait: Wait, capsys: pytest.CaptureFixture[str]):
    text = "worker host:1 was lost: no heartbeat for 10 s"
    event = st.EventStatus(0.1, "WARNING", text, ADDRESS)
    others = [
        st.EventStatus(500.0, "WARNING", "long ago", ADDRESS),
        st.EventStatus(0.1, "WARNING", "another", "host:2"),
        st.EventStatus(0.1, "INFO", "it left", ADDRESS),
    ]
    with pytest.raises(StokerError, match=f"^{text}$"):
        wait([DRAINING, status([], [], [*others, event])])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("journaled", [False, True])
def test_dispatcher_that_does_not_come_back_is_an_error(
    wait: Wait, journaled: bool, capsys: pytest.CaptureFixture[str]
):
    limit = round(draining.RESTART_SECONDS[journaled])
    away = UnavailableError("no dispatcher")
    first = status([worker(draining=True)], [], journaled=journaled)
    short = [first, *[away] * (limit - 1)]
    assert wait([*short, GONE]) == ONCE
    capsys.readouterr()
    with pytest.raises(UnavailableError, match=r"^no dispatcher$"):
        wait([first, *[away] * (limit + 2)])
    assert capsys.readouterr().err == f"stoker: no dispatcher; waiting {limit} s for it\n"
