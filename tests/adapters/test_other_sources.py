"""`from_hugging_face` and `from_grain`."""

import gc

import pytest

import stoker
from stoker.errors import InvalidTypeError

pytestmark = pytest.mark.timeout(200)  # this process and workers import large packages

ROWS = {"text": ["a", "b", "c"], "label": [0, 1, 2], "vector": [[1.0, 2.0]] * 3}


@pytest.fixture
def table():
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # else a thread of it outlives the test
    return datasets.Dataset.from_dict(ROWS)


def test_hugging_face_examples_are_arrays_and_text(table):
    from stoker.hugging_face import from_hugging_face

    dataset = from_hugging_face(table)
    assert len(dataset) == 3
    [batch] = dataset.batch(3)
    assert (batch["text"].tolist(), batch["label"].tolist()) == (["a", "b", "c"], [0, 1, 2])
    assert batch["vector"].shape == (3, 2)


def test_hugging_face_datasets_are_split_among_workers(table):
    from stoker.hugging_face import from_hugging_face

    streamed = table.to_iterable_dataset(num_shards=2)
    with stoker.LocalCluster(2) as cluster:
        for source in (table, streamed):
            read = from_hugging_face(source).distribute(
                cluster, processing_mode="distributed_epoch"
            )
            assert sorted(example["text"] for example in read) == ["a", "b", "c"]


def train_on(samples):
    """Fit y = 2 x on the samples of a dataset, with PyTorch; return the weight."""
    torch = pytest.importorskip("torch")
    from stoker.torch import DataLoader

    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loader = DataLoader(samples, batch_size=4, shuffle=True)
    for _ in range(20):
        for batch in loader:
            optimizer.zero_grad()
            ((weight * batch["x"] - batch["y"]) ** 2).mean().backward()
            optimizer.step()
    return weight.item()


@pytest.mark.usefixtures("table")
def test_model_is_trained_on_hugging_face_examples():
    import datasets

    from stoker.hugging_face import from_hugging_face

    xs = [i / 8 for i in range(16)]
    pairs = datasets.Dataset.from_dict({"x": xs, "y": [2 * x for x in xs]})
    assert train_on(from_hugging_face(pairs)) == pytest.approx(2, abs=1e-3)


def test_streamed_examples_are_shuffled_and_read_in_every_epoch(table):
    from stoker.hugging_face import from_hugging_face

    streamed = table.to_iterable_dataset(num_shards=3)
    for source in (streamed, streamed.shuffle(seed=1, buffer_size=3)):
        dataset = from_hugging_face(source).shuffle(3)
        assert [sorted(x["text"] for x in dataset) for _ in range(2)] == [["a", "b", "c"]] * 2


def test_model_is_trained_on_grain_elements():
    grain = pytest.importorskip("grain")
    from stoker.grain import from_grain

    pairs = grain.MapDataset.range(16).map(lambda i: {"x": i / 8, "y": i / 4})
    assert train_on(from_grain(pairs)) == pytest.approx(2, abs=1e-3)


def test_hugging_face_splits_are_to_be_chosen(table):
    import datasets

    from stoker.hugging_face import from_hugging_face

    with pytest.raises(InvalidTypeError, match=r"dataset\['train'\]"):
        from_hugging_face(datasets.DatasetDict(train=table))
    with pytest.raises(InvalidTypeError, match="got a int"):
        from_hugging_face(3)


def test_grain_datasets_are_sources():
    grain = pytest.importorskip("grain")
    from stoker.grain import from_grain

    mapped = grain.MapDataset.range(5).map(lambda x: x + 1)
    assert list(from_grain(mapped)) == [1, 2, 3, 4, 5]
    assert list(from_grain(mapped.to_iter_dataset())) == [1, 2, 3, 4, 5]
    assert list(from_grain(grain.MapDataset.range(3).repeat()).take(5)) == [0, 1, 2, 0, 1]
    assert list(from_grain([4, 5])) == [4, 5]
    with pytest.raises(InvalidTypeError, match=r"grain\.MapDataset"):
        from_grain(3)
    with pytest.raises(InvalidTypeError, match="already"):
        from_grain(stoker.Dataset.range(3))
    gc.collect()  # Grain's iterators end their threads when they are collected


def test_elements_that_grain_removed_are_absent():
    grain = pytest.importorskip("grain")
    from stoker.grain import from_grain

    odd = grain.MapDataset.range(5).filter(lambda x: x % 2).map(lambda x: x)
    assert list(from_grain(odd)) == [1, 3]
    assert list(from_grain(odd.repeat()).take(3)) == [1, 3, 1]
    spec = stoker.TensorSpec((), "int64")
    assert from_grain(grain.MapDataset.range(3).repeat(), element_spec=spec).element_spec == spec


def test_grain_map_dataset_is_split_among_workers():
    grain = pytest.importorskip("grain")
    from stoker.grain import from_grain

    with stoker.LocalCluster(2) as cluster:
        dataset = from_grain(grain.MapDataset.range(5)).distribute(
            cluster, processing_mode="distributed_epoch"
        )
        assert sorted(dataset) == [0, 1, 2, 3, 4]
