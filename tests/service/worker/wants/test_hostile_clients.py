"""Random messages of clients to a worker's logic, beside a client that only wants its positions."""

import random

import msgspec
import pytest

from stoker.service import messages as m
from stoker.service.keys import reader_key
from stoker.service.worker import actions as a
from stoker.wire import frames as f
from tests.service.hostile.messages import Messages, members
from tests.service.worker.wants.scene import BUFFER_BYTES, LENGTH, TASK, Scene, start, want

HONEST = 1
"""The connection of the honest client."""

KINDS = members(f.BodilessMessage)
STEPS = 1500


def _valid_messages() -> list[f.Message]:
    hellos = [
        f.Hello(1, 1, client, task, 0, attempt=attempt, key=reader_key(b"", client))
        for client in (50, 51, 52)
        for task in (TASK, TASK + 1)
        for attempt in (1, 2, 1000)
    ]
    wants = [
        want(0, (0, 10, 1)),
        want(5, (20, 10, 3), limit=10, nbytes=50),
        want(7, (100, 5, 1), cancelled=((0, 10, 1),)),
        want(0, *[(k, 1, 1) for k in range(LENGTH)]),
    ]
    return [*hellos, *wants, f.Credit(0, 10, 100), f.GiveBack(0, 0), f.Bye()]


@pytest.mark.parametrize("seed", range(4))
def test_random_messages_end_neither_the_worker_nor_another_client(seed: int):
    rng = random.Random(seed)
    messages = Messages(rng, _valid_messages())
    scene = Scene()
    other = msgspec.structs.replace(start(task=TASK + 1), mode=m.WholeTask())
    scene.do(scene.worker.session_message(other, 0.0))
    scene.connect(HONEST, client=40)
    needed, sent = 0, 0
    for step in range(STEPS):
        connection = rng.randint(2, 6)
        kind = f.Hello if rng.random() < 0.2 else rng.choice([*KINDS, f.Want, f.Want, f.Want])
        message = messages.message(kind)
        if isinstance(message, f.Hello) and message.client_id == 40:
            continue  # with the key of the honest client it would be the honest client
        decoded = f.decode(bytes(f.encode(message)[0])[f.PREFIX.size :])
        scene.say(decoded, connection)
        for action in scene.said:
            if isinstance(action, a.SendToClient) and isinstance(action.message, f.Bye):
                scene.do(scene.worker.client_lost(connection))
        if step % 3 == 0 and needed < LENGTH:
            if needed in {place for place, _ in scene.got.get(HONEST, [])}:
                needed += 1
            else:
                ranges = [(needed, 1, 1)] if sent <= needed else []
                sent = max(sent, needed + 1)
                scene.say(want(needed, *ranges), HONEST)
        scene.compute(5)
        assert HONEST not in scene.byes
        # A position of each client besides, which may be as large as a turn.
        assert scene.task.buffer.nbytes <= BUFFER_BYTES + 4 * BUFFER_BYTES // 4
    scene.say(want(needed, *([(needed, 1, 1)] if sent <= needed else [])), HONEST)
    while scene.turns or scene.ask() is not None:
        if scene.turns:
            scene.produce()
    assert scene.places(HONEST) == list(range(needed + 1))
    assert needed > STEPS / 8


@pytest.mark.parametrize("kind", KINDS)
def test_fields_at_their_limits_do_not_end_the_worker(kind: type):
    messages = Messages(random.Random(0), _valid_messages())
    for number, message in enumerate(messages.at_limits(kind)):
        scene = Scene()
        scene.connect(HONEST, client=40)
        scene.connect(2, client=50)
        scene.say(want(0, (0, 10, 1), limit=5), 2)
        scene.ask()
        connection = 3 if isinstance(message, f.Hello) else 2
        scene.say(f.decode(bytes(f.encode(message)[0])[f.PREFIX.size :]), connection)
        scene.say(want(0, (0, 5, 1)), HONEST)
        while scene.turns or scene.ask() is not None:
            if scene.turns:
                scene.produce()
        if not (isinstance(message, f.Hello) and message.client_id == 40):
            assert scene.places(HONEST) == list(range(5)), (number, message)
