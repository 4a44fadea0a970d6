"""`from_hugging_face` and `from_grain`."""

import pytest

import stoker
from stoker.errors import InvalidTypeError

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


@pytest.mark.timeout(120)  # workers import the package
def test_hugging_face_datasets_are_split_among_workers(table):
    from stoker.hugging_face import from_hugging_face

    streamed = table.to_iterable_dataset(num_shards=2)
    with stoker.LocalCluster(2) as cluster:
        for source in (table, streamed):
            read = from_hugging_face(source).distribute(cluster)
            assert sorted(example["text"] for example in read) == ["a", "b", "c"]


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


@pytest.mark.timeout(120)
def test_grain_map_dataset_is_split_among_workers():
    grain = pytest.importorskip("grain")
    from stoker.grain import from_grain

    with stoker.LocalCluster(2) as cluster:
        dataset = from_grain(grain.MapDataset.range(5)).distribute(cluster)
        assert sorted(dataset) == [0, 1, 2, 3, 4]
