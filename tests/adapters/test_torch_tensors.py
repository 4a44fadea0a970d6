"""Arrays become tensors of their dtype, and share memory only where nobody else sees it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker import Dataset, RaggedArray, SparseArray  # noqa: E402
from stoker.elements.structure import flatten  # noqa: E402
from stoker.errors import InvalidArgumentError, InvalidTypeError  # noqa: E402
from stoker.torch import DataLoader, from_torch  # noqa: E402


def loaded(value):
    [found] = DataLoader(Dataset.range(1).map(lambda _: value))
    return found


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8"]
)
def test_numbers_keep_their_dtype(dtype):
    found = loaded(np.ones(3, dtype))
    assert found.numpy().dtype == np.dtype(dtype)
    assert found.tolist() == [1, 1, 1]


def test_bfloat16_of_ml_dtypes_is_that_of_pytorch():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = loaded(np.array([1.5, -2], ml_dtypes.bfloat16))
    assert (found.dtype, found.tolist()) == (torch.bfloat16, [1.5, -2])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6)[::-1],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=">i4"),
        np.zeros((0, 3)),
        np.array(7),
        np.float32(2),
        np.broadcast_to(np.arange(3), (2, 3)),
    ],
    ids=["reversed", "fortran", "big-endian", "empty", "0-d", "scalar", "broadcast"],
)
def test_any_layout_has_the_same_values(array):
    assert np.array_equal(loaded(array).numpy(), array)


def test_field_of_new_records_is_copied():
    records = Dataset.range(1).map(lambda _: np.ones(3, [("a", "i4"), ("b", "f8")])["b"])
    assert [x.tolist() for x in DataLoader(records, prefetch_factor=0)] == [[1, 1, 1]]


def test_subclass_of_another_package_is_a_tensor():
    image = type("Image", (torch.Tensor,), {"__module__": "torchvision.tv_tensors._image"})
    batched = Dataset.range(2).map(lambda _: torch.ones(2).as_subclass(image)).batch(2)
    assert [type(array) for array in batched] == [np.ndarray]
    with_gradient = torch.ones(2, requires_grad=True).as_subclass(image)
    with pytest.raises(InvalidArgumentError, match=r"tensor\.detach"):
        list(Dataset.range(2).map(lambda _: with_gradient).batch(2))


def test_plain_values_and_text_stay():
    assert loaded((1, 2.5, True, "a", b"b", None)) == (1, 2.5, True, "a", b"b", None)
    assert loaded(np.array([["a", "b"]], object)) == [["a", "b"]]
    assert loaded(np.array(["a", "b"])) == ["a", "b"]
    assert loaded(np.array([b"a"])) == [b"a"]
    assert loaded(np.str_("a")) == "a"


def test_ragged_and_sparse_arrays_have_their_tensors():
    nested = loaded(RaggedArray.from_rows([[1, 2], [3]]))
    assert [row.tolist() for row in nested.unbind()] == [[1, 2], [3]]
    sparse = loaded(SparseArray(np.array([[0, 1]]), np.array([5.0]), np.array([2, 2])))
    assert sparse.to_dense().tolist() == [[0, 5], [0, 0]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(2, "datetime64[s]"), r"datetime64\[s\]; convert the array in a map"),
        (np.zeros(2, [("a", "i4")]), "has no tensors of dtype"),
    ],
)
def test_dtype_that_pytorch_lacks_is_named(array, message):
    with pytest.raises(InvalidTypeError, match=message):
        loaded(array)


@pytest.mark.filterwarnings("error")
def test_changing_a_tensor_changes_no_data_of_the_user():
    table = np.zeros((4, 1000))
    tensors = torch.from_numpy(table)
    datasets = [
        Dataset.from_tensor_slices(table),
        Dataset.from_tensor_slices(table).repeat(2),
        Dataset.from_tensor_slices(tensors),
        Dataset.from_tensors(table),
        Dataset.range(4).map(lambda i: table[i]),
        Dataset.range(4).map(lambda i: tensors[i]),
        Dataset.range(2).map(lambda _: table),
        Dataset.range(2).map(lambda _: tensors),
        Dataset.range(2).map(lambda _: table, num_parallel_calls=2).prefetch(2),
        Dataset.from_tensor_slices(table).batch(2),
        Dataset.from_tensor_slices(table).batch(1),
        Dataset.from_tensor_slices(table).batch(2).cache(),
        Dataset.from_tensor_slices(table).shuffle(4).batch(2).map(lambda x: x[:1]),
        Dataset.from_generator(lambda: iter(table)),
        from_torch(torch.utils.data.TensorDataset(tensors)),
        from_torch(tensors),
    ]
    for dataset in datasets:
        for batch in DataLoader(dataset):
            (batch[0] if isinstance(batch, tuple) else batch).add_(1)
        for batch in DataLoader(dataset, batch_size=2, collate_fn=lambda samples: samples):
            for sample in batch:
                (sample[0] if isinstance(sample, tuple) else sample).add_(1)
    assert not table.any()


def test_changing_a_tensor_changes_no_data_in_kept_containers():
    kept = [{"x": np.zeros(3), "y": {"z": np.zeros(3)}} for _ in range(2)]
    for batch in DataLoader(Dataset.range(2).map(lambda i: kept[i])):
        batch["x"].add_(1)
        batch["y"]["z"].add_(1)
    assert not any(array.any() for array in flatten(kept))


def test_changing_a_tensor_changes_no_state_of_a_scan():
    def counted(state, _):
        state = {"x": state["x"] + 1}
        return state, state

    loader = DataLoader(Dataset.range(3).scan({"x": np.zeros(1)}, counted), prefetch_factor=0)
    assert [batch["x"].add_(1).item() for batch in loader] == [2, 3, 4]


@pytest.mark.parametrize("target_workers", ["AUTO", "LOCAL"])
def test_changing_a_tensor_of_a_local_worker_changes_no_data(target_workers):
    table = np.zeros((4, 50_000))
    with stoker.LocalCluster(1, threads=True) as cluster:
        for dataset in (
            Dataset.from_tensor_slices(table),
            Dataset.range(4).map(lambda i: table[i]).repeat(2),
            Dataset.range(4).map(lambda _: table).cache(),
            Dataset.range(4).map(lambda i: torch.from_numpy(table)[i]),
        ):
            served = dataset.distribute(cluster, target_workers=target_workers)
            for tensor in DataLoader(served):
                tensor.add_(1)
    assert not table.any()


def test_changing_a_cached_tensor_changes_no_other_epoch():
    loader = DataLoader(Dataset.range(2).map(lambda _: torch.zeros(1000)).cache())
    for _ in range(3):
        assert [float(tensor.add_(1).sum()) for tensor in loader] == [1000, 1000]


def test_changing_a_tensor_changes_no_cached_element():
    loader = DataLoader(Dataset.range(2).map(lambda _: np.zeros(1000)).cache())
    for _ in range(3):
        assert [float(tensor.add_(1).sum()) for tensor in loader] == [1000, 1000]


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_changing_a_received_tensor_changes_no_cached_element(threads):
    with stoker.LocalCluster(1, threads=threads) as cluster:
        cached = Dataset.range(2).map(lambda _: np.zeros(50_000)).cache()
        loader = DataLoader(cached.repeat(3).distribute(cluster))
        assert {float(tensor.add_(1).sum()) for tensor in loader} == {50_000}


def test_batches_become_tensors_without_a_copy(monkeypatch):
    shared = []
    original = torch.from_numpy

    def from_numpy(array):
        shared.append(array.nbytes)
        return original(array)

    dataset = Dataset.range(4).map(lambda i: np.full(100_000, i)).batch(2)
    with stoker.LocalCluster(1) as cluster:
        for batches in (dataset, dataset.distribute(cluster)):
            monkeypatch.setattr(torch, "from_numpy", from_numpy)
            loader = DataLoader(batches, prefetch_factor=0)
            assert sorted(int(tensor.sum()) for tensor in loader) == [100_000, 500_000]
            monkeypatch.undo()
    assert shared.count(1_600_000) == 4
