"""Limits of this machine without any service: a bare socket pair, and copied memory."""

import mmap
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np

from service.elements import Element

_HEADER = bytes(64)


def socket_pair(element: Element) -> Iterator[Any]:
    """Yield elements that one process writes anew and another receives, over TCP on loopback.

    With as little Python as possible: one `sendmsg` and one `recv_into` per frame, which holds many
    elements where they are small. Each side reuses one buffer.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        try:
            with socket.create_connection(listener.getsockname()) as sending:
                _send(sending, element)
        except OSError:  # the reader has closed the connection
            pass
        finally:
            os._exit(0)
    receiving, _ = listener.accept()
    frame = _frame_of(element)
    parts = memoryview(bytearray(len(_HEADER))), frame.reshape(-1).view(np.uint8).data
    while True:
        for part in parts:
            received = 0
            while received < len(part):
                count = receiving.recv_into(part[received:], 0, socket.MSG_WAITALL)
                if not count:
                    raise ConnectionError("the sending process has ended")
                received += count
        if element.frame == 1:
            yield frame[0]
        else:
            yield from frame.tolist() if not element.shape else frame


def _frame_of(element: Element) -> "np.ndarray[Any, Any]":
    return np.zeros((element.frame, *element.shape), element.dtype)


def _send(sending: socket.socket, element: Element) -> None:
    sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frame = _frame_of(element)
    numbers = np.arange(element.frame).reshape(-1, *(1 for _ in element.shape))
    body = frame.reshape(-1).view(np.uint8).data
    first = 0
    while True:
        if element.frame == 1:
            frame.fill(first & 127)
        else:
            np.add(numbers, first, out=frame)
        first += element.frame
        sent = sending.sendmsg([_HEADER, body]) - len(_HEADER)
        if sent < len(body):
            sending.sendall(body[sent:])


def copied_fresh(element: Element) -> Iterator[Any]:
    """Yield one array copied into memory not used before, so that every page is a fault."""
    source = np.ones(element.shape, element.dtype)
    while True:
        memory = mmap.mmap(-1, source.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        target = np.frombuffer(memory, source.dtype).reshape(source.shape)
        np.copyto(target, source)
        yield target


def copied_reused(element: Element) -> Iterator[Any]:
    """Yield one array copied into the same memory each time."""
    source = np.ones(element.shape, element.dtype)
    target = np.zeros_like(source)
    while True:
        np.copyto(target, source)
        yield target
