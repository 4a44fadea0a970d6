"""What the conformance tests share: services, and the ways elements travel."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.serving import Service


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Starts services (arguments as of `Service`) and stops them at the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments, **fields) -> Service:
            return stack.enter_context(Service(*arguments, **fields))

        yield start


@pytest.fixture(params=["tcp", "shm", "grpc", "local"])
def transport(request: pytest.FixtureRequest) -> str:
    """How elements travel: between processes, if these were two, or handed over within one."""
    return str(request.param)
