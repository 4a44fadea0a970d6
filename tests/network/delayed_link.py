"""A slow link between two hosts: `python -m tests.network.delayed_link DELAY LOSS MTU A B`.

A and B are network namespaces; each gets an interface "far". Of the packets that one sends there,
the fraction LOSS is lost and the others arrive at the other after DELAY seconds. It replaces netem,
which few test machines have.
"""

import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_QUEUED_PACKETS = 20_000


def open_interface(namespace: str) -> int:
    """Return the descriptor of a new interface "far" in a namespace, which this thread enters."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"far", _IFF_TUN | _IFF_NO_PI))
    return device


def carry(delay: float, loss: float, first: int, second: int) -> None:
    """Carry packets between two interfaces until killed."""
    in_flight = {first: deque[tuple[float, bytes]](), second: deque[tuple[float, bytes]]()}
    other = {first: second, second: first}
    rng = random.Random(0)
    poll = select.epoll()
    for device in other:
        poll.register(device, select.EPOLLIN)
    while True:
        due = [queue[0][0] for queue in in_flight.values() if queue]
        timeout = max(0.0, min(due) - time.monotonic()) if due else -1
        for device, _ in poll.poll(timeout):
            arrives = time.monotonic() + delay
            queue = in_flight[other[device]]
            try:
                for _ in range(64):
                    packet = os.read(device, 65536)
                    if len(queue) < _QUEUED_PACKETS and rng.random() >= loss:
                        queue.append((arrives, packet))
            except BlockingIOError:
                pass
        now = time.monotonic()
        for device, queue in in_flight.items():
            while queue and queue[0][0] <= now:
                os.write(device, queue.popleft()[1])


def main(delay: str, loss: str, mtu: str, *namespaces: str) -> None:
    """Make both interfaces, with the addresses 10.99.0.1 and 10.99.0.2, and carry packets."""
    devices = []
    for number, namespace in enumerate(namespaces, 1):
        devices.append(open_interface(namespace))
        for words in (
            f"addr add 10.99.0.{number}/24 dev far",
            f"link set far mtu {mtu} txqueuelen 10000 up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
    print("serves at far", flush=True)
    carry(float(delay), float(loss), *devices)


if __name__ == "__main__":
    main(*sys.argv[1:])
