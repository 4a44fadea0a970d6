"""Fixtures of the tests between network namespaces, which are skipped where none can be made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.namespaces import Network, missing_for_namespaces
from tests.network.processes import Service


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if reason := missing_for_namespaces():
        pytest.skip(reason)


@pytest.fixture
def network(namespaces: None) -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture
def service(network: Network, tmp_path: Path) -> Iterator[Service]:
    with Service(network, tmp_path) as made:
        yield made
