"""Stages of misconfigured services, and the doctor's findings about them."""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stoker.cli.doctor.examination import examine
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.machine import Machine
from tests.serving import Service, close

DOCUMENT = Path(__file__).parents[3] / "docs" / "doctor.md"

HOST = "worker.example"
"""A name that only these tests resolve, to loopback: it stands for another machine."""


def healthy_machine(**facts: Any) -> Machine:
    """Return the facts about this machine, with none that depend on where the tests run."""
    usual: dict[str, Any] = {"open_files": 65536, "dev_shm_bytes": None}
    return Machine(**{**usual, **facts})


LINKS = frozenset({"slow-link", "long-round-trip"})
"""Warnings that a busy machine of the tests may cause too."""


def findings(
    service: Service | str, *, timeout: float = 5.0, links: bool = False, **facts: Any
) -> list[Finding]:
    """Return all findings, for a machine with some other facts; `LINKS` only with `links`."""
    target = service if isinstance(service, str) else service.target.removeprefix("grpc://")
    found = examine(target, healthy_machine(**facts), timeout)
    return [each for each in found if links or each.name not in LINKS]


def troubles(found: list[Finding]) -> list[tuple[Level, str]]:
    """Return level and name of the findings that are not "ok"; each is documented, with a fix."""
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    bad = [each for each in found if each.level is not Level.OK]
    assert {each.name for each in bad} <= documented
    assert [each for each in bad if not each.fix and each.level is not Level.NOT_CHECKED] == []
    return [(each.level, each.name) for each in bad]


def fix_of(found: list[Finding], name: str) -> str:
    """Return the advice of the only finding with a name."""
    return _named(found, name).fix


def seen_of(found: list[Finding], name: str) -> str:
    """Return what was seen by the only finding with a name."""
    return _named(found, name).seen


def _named(found: list[Finding], name: str) -> Finding:
    [finding] = [each for each in found if each.name == name]
    return finding


def resolve_host(monkeypatch: Any) -> None:
    """Let `HOST` resolve to loopback in this process."""
    original = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        return original("127.0.0.1" if host == HOST else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def advertise(service: Service, **addresses: str) -> None:
    """Let the dispatcher know the only worker by other addresses, one for each transport."""
    [worker] = service.state.workers.values()
    known = {**worker.added.data_transfer_addresses, **addresses}
    worker.added = msgspec.structs.replace(worker.added, data_transfer_addresses=known)


def send_ssh_banner(connection: socket.socket) -> None:
    """Answer as an SSH server does."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")


def answer_http(connection: socket.socket) -> None:
    """Answer the first bytes as an HTTP server does, and close the connection."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    close(connection)


@contextlib.contextmanager
def dropping_port() -> Iterator[int]:
    """Yield a port whose kernel drops the packets of new connections: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port
