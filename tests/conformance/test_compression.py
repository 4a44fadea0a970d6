"""What users say of compression, and what becomes of it on the way to them."""

import logging

import numpy as np
import pytest

import stoker
from stoker.service import distribute, from_dataset_id, register_dataset
from stoker.wire import compression
from stoker.wire.compression import CODECS
from tests.serving import read

COUNT = 20
ROWS = 10_000
DATASET = stoker.Dataset.range(COUNT).map(lambda i: np.full(ROWS, i))
"""Elements of 80 KB that shrink to almost nothing."""


@pytest.fixture
def used(monkeypatch) -> list[str]:
    """The codecs of the bodies that are compressed from here on, by workers in this process."""
    names = []
    real = compression.compress

    def noted(name, *arguments):
        names.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(compression, "compress", noted)
    return names


def firsts(dataset: stoker.Dataset) -> list[int]:
    """Reads it, checks that its elements are whole, and returns what each is made of."""
    elements = read(dataset)
    assert all((element == element[0]).all() and len(element) == ROWS for element in elements)
    return [int(element[0]) for element in elements]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
def test_a_codec_is_used_for_what_goes_over_the_network(serve, used, protocol, codec):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression=codec, data_transfer_protocol=protocol)
    assert firsts(dataset) == list(range(COUNT))
    assert set(used) == {codec}


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
def test_nothing_is_compressed_where_nothing_is_asked_for(serve, used, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression=None, data_transfer_protocol=protocol)
    assert firsts(dataset) == list(range(COUNT))
    assert used == []


@pytest.mark.parametrize("protocol", ["tcp", "grpc", None])
def test_auto_reads_the_same(serve, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, data_transfer_protocol=protocol)
    assert firsts(dataset) == list(range(COUNT))


@pytest.mark.parametrize("protocol", ["local", "shm", None])
def test_memory_that_is_shared_is_never_compressed(serve, used, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression="ZSTD", data_transfer_protocol=protocol)
    assert firsts(dataset) == list(range(COUNT))
    assert used == []


@pytest.mark.parametrize("spec", [None, stoker.UnknownSpec()], ids=["asked", "given"])
def test_who_reads_an_id_reads_it_as_it_was_registered(serve, used, spec):
    target = serve(1).target
    for codec in CODECS:
        dataset_id = register_dataset(target, DATASET, compression=codec)
        dataset = from_dataset_id(
            "distributed_epoch",
            target,
            dataset_id,
            element_spec=spec,
            data_transfer_protocol="tcp",
        )
        used.clear()
        assert firsts(dataset) == list(range(COUNT))
        assert set(used) == {codec}


def test_of_an_explicit_id_the_first_registration_stands(serve, used):
    target = serve(1).target
    for codec in ("LZ4", None):
        assert register_dataset(target, DATASET, compression=codec, dataset_id="mine") == "mine"
    dataset = from_dataset_id("distributed_epoch", target, "mine", data_transfer_protocol="tcp")
    assert firsts(dataset) == list(range(COUNT))
    assert set(used) == {"LZ4"}


def test_clients_of_one_job_have_each_their_own_and_are_not_warned(serve, used, caplog):
    target = serve(1).target
    with caplog.at_level(logging.WARNING, "stoker"):
        for epoch, codec in enumerate(("LZ4", "ZSTD")):
            transformation = distribute(
                "distributed_epoch",
                target,
                job_name="one",
                compression=codec,
                data_transfer_protocol="tcp",
            )
            used.clear()
            dataset = DATASET.apply(transformation)
            assert [int(x[0]) for x in read(dataset.iterator(epoch=epoch))] == list(range(COUNT))
            assert set(used) == {codec}
    assert not caplog.records
