"""Places for journals."""

import uuid
from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.service.journal.faulty_stores import FaultyStore, register

register()


@pytest.fixture(params=["local", "memory", "directory", "faulty"])
def work_dir(request, tmp_path) -> Iterator[str]:
    """Return an empty work_dir of each kind."""
    if request.param == "local":
        yield str(tmp_path / "work")
    elif request.param == "directory":
        yield f"directory://{tmp_path}/work"
    elif request.param == "memory":
        name = f"/{uuid.uuid4()}"
        yield f"memory:/{name}"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
    else:
        FaultyStore.reset()
        yield "faulty://work"
        FaultyStore.reset()


@pytest.fixture
def faulty() -> Iterator[type[FaultyStore]]:
    """Return an empty store whose faults a test sets; its URL is faulty://work."""
    FaultyStore.reset()
    yield FaultyStore
    FaultyStore.reset()
