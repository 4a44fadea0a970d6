"""Copies to a GPU while the trainer computes, with a GPU that is simulated."""

import contextlib
import functools
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from stoker import Dataset, RaggedArray, SparseArray  # noqa: E402
from stoker.errors import FailedPreconditionError  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402

DEADLINE = 20


class FakeCuda:
    """The calls to torch.cuda, in order; copies stay in memory."""

    def __init__(self, monkeypatch):
        self.calls: list[str] = []
        self.copied = threading.Semaphore(0)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"side of {device}")
        monkeypatch.setattr(torch.cuda, "stream", self._stream)
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        # The current device of the reader's thread; other threads have 0, as in PyTorch.
        self.current = threading.local()
        monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(self.current, "index", 0))
        monkeypatch.setattr(torch.cuda, "Event", lambda: Event(self.calls))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(self.calls))
        monkeypatch.setattr(torch.Tensor, "to", functools.partialmethod(_to, self))
        monkeypatch.setattr(
            torch.Tensor, "record_stream", functools.partialmethod(_record_stream, self)
        )
        monkeypatch.setattr(torch, "empty", self._empty)

    @contextlib.contextmanager
    def _stream(self, stream):
        self.calls.append(f"on {stream}")
        yield

    def _empty(self, *arguments, pin_memory=False, **others):
        if pin_memory:
            self.calls.append("pinned")
        return _real_empty(*arguments, **others)


_real_empty = torch.empty


def _to(tensor, cuda, device, non_blocking=False):
    assert non_blocking
    cuda.calls.append("copy")
    cuda.copied.release()
    return tensor


def _record_stream(tensor, cuda, stream):
    assert tensor.layout == torch.strided  # as in PyTorch
    cuda.calls.append("record_stream")


class Event:
    def __init__(self, calls):
        self._calls = calls

    def record(self, stream):
        self._calls.append(f"record {stream}")


class Stream:
    def __init__(self, calls):
        self._calls = calls

    def wait_event(self, event):
        self._calls.append("wait")


@pytest.fixture
def cuda(monkeypatch):
    return FakeCuda(monkeypatch)


def test_batch_is_pinned_copied_on_another_stream_and_waited_for(cuda):
    loader = DataLoader(Dataset.range(2), batch_size=2, device="cuda:0")
    assert [batch.tolist() for batch in loader] == [[0, 1]]
    side = "side of cuda:0"
    assert cuda.calls == [
        f"on {side}", "pinned", "copy", f"record {side}", "wait", "record_stream"
    ]  # fmt: skip


def test_copies_go_to_the_current_device_of_the_reader(cuda):
    cuda.current.index = 3
    list(DataLoader(Dataset.range(2), batch_size=2, device="cuda"))
    assert cuda.calls[0] == "on side of cuda:3"


def test_memory_of_a_sparse_tensor_is_kept(cuda):
    sparse = SparseArray(np.array([[0, 1]]), np.array([5.0]), np.array([2, 2]))
    list(DataLoader(Dataset.range(1).map(lambda _: sparse), device="cuda"))
    assert cuda.calls.count("record_stream") == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_arrive_on_a_real_gpu():
    def sample(i):
        return {
            "x": np.full((64, 1000), i, np.float32),
            "sparse": SparseArray(np.array([[0, 1]]), np.array([5.0]), np.array([2, 2])),
            "ragged": RaggedArray.from_rows([[1, 2], [3]]),
            "name": str(i),
        }

    device = torch.cuda.device_count() - 1
    torch.cuda.set_device(device)
    batches = list(DataLoader(Dataset.range(20).map(sample), device="cuda"))
    assert {batch["x"].device.index for batch in batches} == {device}
    assert [float(batch["x"].mean()) for batch in batches] == list(range(20))
    assert [batch["sparse"].to_dense().sum().item() for batch in batches] == [5] * 20
    assert [int(batch["ragged"].values().sum()) for batch in batches] == [6] * 20


def test_prefetch_factor_batches_are_copied_ahead(cuda):
    loader = DataLoader(Dataset.range(10), batch_size=1, device="cuda", prefetch_factor=3)
    with iter(loader) as iterator:
        next(iterator)
        for _ in range(4):  # the one that was read, and three
            assert cuda.copied.acquire(timeout=DEADLINE)
        assert loader.state_dict()["iterator"]["position"] == 1


def test_error_is_raised_at_its_position(cuda):
    loader = DataLoader(Dataset.range(3).map(lambda i: 6 // (i - 1)), device="cuda")
    iterator = iter(loader)
    assert next(iterator) == -6
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert list(iterator) == [6]
    assert loader.state_dict()["epoch"] == 1


def test_closing_ends_the_thread(cuda):
    iterator = iter(DataLoader(Dataset.counter().batch(2), device="cuda"))
    next(iterator)
    iterator.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        next(iterator)
    assert not [t for t in threading.enumerate() if t.name == "stoker-device"]


def test_iterator_that_is_dropped_ends_its_thread(cuda):
    for _ in DataLoader(Dataset.counter().batch(2), device="cuda"):
        break  # the fixture no_leaks checks that the thread ends


def test_pin_memory_without_device_pins_only(cuda):
    loader = DataLoader(Dataset.range(2), batch_size=2, pin_memory=True)
    assert [batch.tolist() for batch in loader] == [[0, 1]]
    assert cuda.calls == ["pinned"]


def test_tensor_of_a_function_is_pinned(cuda, monkeypatch):
    def pin_memory(tensor):
        cuda.calls.append("pinned")
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    [batch] = DataLoader(Dataset.range(1).map(lambda _: torch.ones(2)), pin_memory=True)
    assert (batch.tolist(), cuda.calls) == ([1, 1], ["pinned"])


def test_device_cpu_is_no_copy():
    loader = DataLoader(Dataset.range(2), batch_size=2, device="cpu")
    assert [batch.device.type for batch in loader] == ["cpu"]
