"""Fixtures of the conformance tests: services and transports."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Service, worker_fields_for


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Service]]:
    """Start services (arguments as of `Service`) and stop them at the end of the test.

    Where the test's `transport` or `protocol` is "grpc", workers serve by gRPC.
    """
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    by = worker_fields_for(parameters.get("transport", parameters.get("protocol")))
    with contextlib.ExitStack() as stack:

        def start(*arguments, worker: dict[str, Any] | None = None, **fields) -> Service:
            service = Service(*arguments, worker={**by, **(worker or {})}, **fields)
            return stack.enter_context(service)

        yield start


@pytest.fixture
def journal(tmp_path: Path) -> dict[str, Any]:
    """Fields of `DispatcherConfig` with which a dispatcher keeps a journal."""
    return {"work_dir": str(tmp_path / "journal"), "fault_tolerant_mode": True}


@pytest.fixture(params=["tcp", "shm", "grpc", "local"])
def transport(request: pytest.FixtureRequest) -> str:
    """Name of each transport: three that cross processes, and "local" within one."""
    return str(request.param)
