"""Random messages to the dispatcher's logic, which goes on and refuses before any change."""

import msgspec
import pytest

from stoker.service import messages as m
from stoker.service.control import rpc
from tests.service.hostile.run import EVERYTHING, REQUESTS, HostileRun

STEPS = 20_000


def test_random_messages_do_not_end_the_dispatcher():
    run = HostileRun(0)
    for _ in range(STEPS):
        run.step()
    assert run.accepted > STEPS / 2


@pytest.mark.parametrize("kind", [*EVERYTHING, *REQUESTS])
def test_fields_at_their_limits_do_not_end_the_dispatcher(kind):
    run = HostileRun(0)
    for _ in range(200):
        run.step()
    for message in run.messages.at_limits(kind):
        if kind in REQUESTS:
            run.call(message)
        else:
            run.say(run.session_for(kind), message)
        run.pass_time(0.25)
    run.check()


@pytest.mark.parametrize("number", [-1, (1 << 53) + 1])
@pytest.mark.parametrize(
    "of_number",
    [
        lambda n: m.Heartbeat({1: m.TaskReport(n, 0)}),
        lambda n: m.Heartbeat(reading=m.ReadReport(0, n, 0.0, 0.0)),
        lambda n: m.TaskLeft(1, 1, (n, 0)),
        lambda n: m.ClientClose({1: (0, n)}),
        lambda n: m.ClientClose({}, m.RoundPosition(n)),
        lambda n: m.RoundReached(0, m.RoundPosition(), owed=n),
        lambda n: m.WorkerLeave({1: n}),
    ],
)
def test_numbers_that_no_peer_reports_are_not_decoded(of_number, number):
    assert rpc.decode_to_dispatcher(rpc.encode(of_number(1)))
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        rpc.decode_to_dispatcher(rpc.encode(of_number(number)))
