"""`stoker.torch.from_torch`, and tensors that functions return."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker import Dataset  # noqa: E402
from stoker.dataset.pickling.pickled import Pickled  # noqa: E402
from stoker.errors import InvalidArgumentError, InvalidTypeError  # noqa: E402
from stoker.torch import DataLoader, from_torch  # noqa: E402
from tests.adapters.torch_datasets import Countdown, Squares  # noqa: E402


def test_map_style_dataset_is_a_counted_source():
    dataset = from_torch(Squares())
    assert len(dataset) == 6
    [batch] = DataLoader(dataset, batch_size=6)
    assert batch["y"].tolist() == list(range(6))
    assert batch["x"][:, 0].tolist() == [i**2 for i in range(6)]


def test_map_style_dataset_is_split_among_workers():
    with stoker.LocalCluster(2) as cluster:
        samples = list(
            from_torch(Squares(), num_parallel_calls=2).distribute(
                cluster, processing_mode="distributed_epoch"
            )
        )
    assert sorted(sample["y"] for sample in samples) == list(range(6))
    assert all(isinstance(sample["x"], np.ndarray) for sample in samples)


def test_attributes_named_classes_and_ops_travel_with_torch():
    class Folder:
        classes, ops = ["cat", "dog"], 1

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return torch.tensor(len(self.classes[index]) + self.ops)

    pickled = Pickled.of(Folder())  # made in a function, so pickled by value
    assert Pickled.from_blob(pickled.blob).value[0] == torch.tensor(4)
    assert pickled.code().digest


def test_iterable_dataset_is_read_in_order_in_each_epoch():
    dataset = from_torch(Countdown())
    assert [int(x) for x in dataset] == [int(x) for x in dataset] == [3, 2, 1]


def test_other_objects_are_refused():
    with pytest.raises(InvalidTypeError, match="__getitem__ and __len__"):
        from_torch(7)
    with pytest.raises(InvalidTypeError, match="already"):
        from_torch(Dataset.range(3))


def test_tensors_of_functions_travel_as_arrays():
    with stoker.LocalCluster(1) as cluster:
        dataset = Dataset.range(3).map(lambda i: (torch.full((2,), i), torch.ones(1).bfloat16()))
        numbers, halves = zip(*dataset.distribute(cluster), strict=True)
        assert sorted(x.tolist() for x in numbers) == [[0, 0], [1, 1], [2, 2]]
        assert halves[0].dtype.name == "bfloat16"
        batched = dataset.batch(3).distribute(cluster)
        assert next(iter(batched))[0].shape == (3, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(2, requires_grad=True), r"requires_grad=True.*tensor\.detach\(\)"),
        (lambda: torch.eye(2).to_sparse(), r"torch\.sparse_coo.*tensor\.to_dense\(\)"),
        (lambda: torch.ones(2, device="meta"), r"device meta.*tensor\.cpu\(\)"),
        (
            lambda: torch.nested.as_nested_tensor([torch.ones(1)], layout=torch.jagged),
            r"nested tensors.*tensor\.unbind\(\)",
        ),
    ],
    ids=["requires_grad", "sparse", "device", "nested"],
)
def test_tensors_without_numpy_form_are_one_clear_line(make, message):
    def function(_):
        return {"x": make()}

    with stoker.LocalCluster(1, threads=True) as cluster:
        served = Dataset.range(1).map(function).distribute(cluster, data_transfer_protocol="tcp")
        with pytest.raises(InvalidArgumentError, match=message):
            list(served)
    with pytest.raises(InvalidArgumentError, match=message):
        list(Dataset.range(1).map(function).batch(1))
    with pytest.raises(InvalidArgumentError, match=message):
        list(from_torch([function(0)]))
