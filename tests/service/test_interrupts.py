"""Ctrl-C while the user's thread receives: no element is lost silently."""

import threading
import time
from typing import Any

import pytest

import stoker
from stoker.errors import FailedPreconditionError
from stoker.service.client import logic
from stoker.wire.transports.tcp import TcpConnection
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, iterator_with_deadline

ELEMENTS = 60


def _slow(number: int) -> int:
    time.sleep(0.002)
    return number


def _interrupt_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Raise KeyboardInterrupt when a method returns on this thread, once; the list tells."""
    original = getattr(owner, name)
    interrupted: list[str] = []

    def method(self: Any, *arguments: Any) -> Any:
        result = original(self, *arguments)
        mine = threading.current_thread() is threading.main_thread()
        if mine and result and not interrupted:
            interrupted.append(name)
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, method)
    return interrupted


def test_interrupt_in_a_message_sends_its_frame_again(monkeypatch):
    interrupted = _interrupt_once(monkeypatch, TcpConnection, "receive_now")
    found: list[int] = []
    with Service(1) as service:
        dataset = stoker.Dataset.range(ELEMENTS).map(_slow)
        dataset = dataset.distribute(
            service.target, processing_mode="distributed_epoch", data_transfer_protocol="tcp"
        )
        with iterator_with_deadline(dataset) as iterator:
            while len(found) < ELEMENTS:
                try:
                    found.append(next(iterator))
                except KeyboardInterrupt:
                    assert interrupted
    assert found == list(range(ELEMENTS))
    assert interrupted


def test_interrupt_in_the_logic_ends_the_iterator_with_an_error(monkeypatch):
    monkeypatch.setattr(logic.Client, "take_counts", _raise_on_the_main_thread)
    clock = ManualClock()
    with Service(1, clock=clock) as service, clock.running():
        dataset = stoker.Dataset.range(ELEMENTS).map(_slow)
        dataset = dataset.distribute(service.dispatcher, data_transfer_protocol="tcp")
        with iterator_with_deadline(dataset) as iterator:
            with pytest.raises(KeyboardInterrupt):
                list(iterator)
            with pytest.raises(FailedPreconditionError, match="was interrupted"):
                next(iterator)
        assert eventually(lambda: not service.tasks)


def _raise_on_the_main_thread(client: Any) -> dict[str, int]:
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    return {}
