"""Send queues: messages are sent in order by any thread."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stoker.errors import InvalidArgumentError, UnavailableError
from stoker.service.worker.send_queue import SendQueue
from stoker.wire import frames as f
from stoker.wire.transports import Connection
from tests.serving import DEADLINE, eventually


class _Connection(Connection):
    """A connection that records messages and threads; `ready` tells which need not wait."""

    peer = "a client"

    def __init__(self, ready: Callable[[Any], bool]) -> None:
        self.sent: list[tuple[Any, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self._ready = ready
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, message: Any) -> None:
        assert self.gate.wait(DEADLINE)
        self._note(message)

    def send_now(self, message: Any) -> bool:
        if not self._ready(message):
            return False
        self._note(message)
        return True

    def _note(self, message: Any) -> None:
        if isinstance(message, Exception):
            raise message
        self.sent.append((message, threading.current_thread().name))

    def receive(self, timeout: float | None = None) -> f.Message:
        raise NotImplementedError

    def close(self) -> None:
        self._closed = True


def _send_queue(ready: Callable[[Any], bool]) -> tuple[Any, _Connection]:
    connection = _Connection(ready)
    return SendQueue(connection), connection


def _end(send_queue: Any, connection: _Connection) -> None:
    send_queue.put(None)
    send_queue.flush()
    send_queue.join()
    assert connection.closed


def test_message_that_need_not_wait_is_sent_by_the_caller():
    send_queue, connection = _send_queue(lambda message: True)
    for number in range(5):
        send_queue.put(number)
    send_queue.flush()
    me = threading.current_thread().name
    assert connection.sent == [(number, me) for number in range(5)]
    _end(send_queue, connection)


def test_waiting_message_blocks_no_thread_and_keeps_order():
    send_queue, connection = _send_queue(lambda message: message != 1)
    connection.gate.clear()
    for number in range(3):
        send_queue.put(number)
    send_queue.flush()
    send_queue.put(3)
    send_queue.flush()
    assert [message for message, _ in connection.sent] == [0]
    connection.gate.set()
    assert eventually(lambda: len(connection.sent) == 4)
    assert [message for message, _ in connection.sent] == [0, 1, 2, 3]
    assert connection.sent[1][1] == "stoker-send"
    _end(send_queue, connection)


@pytest.mark.parametrize("ready", [True, False])
def test_nothing_is_sent_to_a_disconnected_client(ready: bool):
    send_queue, connection = _send_queue(lambda message: ready)
    for message in (1, UnavailableError("gone"), 2):
        send_queue.put(message)
    send_queue.flush()
    send_queue.join()
    assert connection.closed
    assert [message for message, _ in connection.sent] == [1]
    send_queue.put(3)
    send_queue.flush()
    assert len(connection.sent) == 1


@pytest.mark.parametrize("ready", [True, False])
def test_unencodable_frame_ends_the_connection_with_bye(ready: bool):
    send_queue, connection = _send_queue(lambda message: ready)
    for message in (InvalidArgumentError("too different"), 2):
        send_queue.put(message)
    send_queue.flush()
    send_queue.join()
    [(bye, _)] = connection.sent
    assert isinstance(bye, f.Bye)
    assert bye.error is not None
    assert bye.error.message == "too different"


@pytest.mark.parametrize("share", [1, 2, 3, 1000])
def test_messages_of_many_threads_are_all_sent(share: int):
    send_queue, connection = _send_queue(lambda message: message[1] % share != 0)
    lock = threading.Lock()
    count = iter(range(1 << 30))

    def put() -> None:
        for _ in range(300):
            with lock:  # like the worker's: it makes the order of the messages that of the puts
                send_queue.put((0, next(count)))
            send_queue.flush()

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert eventually(lambda: len(connection.sent) == 1200)
    assert [number for (_, number), _ in connection.sent] == list(range(1200))
    _end(send_queue, connection)
