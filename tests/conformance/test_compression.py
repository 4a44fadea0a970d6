"""The `compression` argument, and the codec that each transport then uses."""

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
def used_codecs(monkeypatch) -> list[str]:
    """Codecs with which workers in this process compress frame bodies, in order."""
    names = []
    real = compression.compress

    def recording_compress(name, *arguments):
        names.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(compression, "compress", recording_compress)
    return names


def element_values(dataset: stoker.Dataset) -> list[int]:
    """Read `dataset`, check that its elements are complete, and return the value of each."""
    elements = read(dataset)
    assert all((element == element[0]).all() and len(element) == ROWS for element in elements)
    return [int(element[0]) for element in elements]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
def test_network_transports_use_the_requested_codec(serve, used_codecs, protocol, codec):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression=codec, data_transfer_protocol=protocol)
    assert element_values(dataset) == list(range(COUNT))
    assert set(used_codecs) == {codec}


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
def test_compression_none_compresses_nothing(serve, used_codecs, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression=None, data_transfer_protocol=protocol)
    assert element_values(dataset) == list(range(COUNT))
    assert used_codecs == []


@pytest.mark.parametrize("protocol", ["tcp", "grpc", None])
def test_auto_compression_yields_the_same_elements(serve, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, data_transfer_protocol=protocol)
    assert element_values(dataset) == list(range(COUNT))


@pytest.mark.parametrize("protocol", ["local", "shm", None])
def test_shared_memory_is_never_compressed(serve, used_codecs, protocol):
    target = serve(1).target
    dataset = DATASET.distribute(target, compression="ZSTD", data_transfer_protocol=protocol)
    assert element_values(dataset) == list(range(COUNT))
    assert used_codecs == []


@pytest.mark.parametrize("spec", [None, stoker.UnknownSpec()], ids=["asked", "given"])
def test_reading_by_id_uses_the_registered_compression(serve, used_codecs, spec):
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
        used_codecs.clear()
        assert element_values(dataset) == list(range(COUNT))
        assert set(used_codecs) == {codec}


def test_first_registration_of_an_explicit_id_wins(serve, used_codecs):
    target = serve(1).target
    for codec in ("LZ4", None):
        assert register_dataset(target, DATASET, compression=codec, dataset_id="mine") == "mine"
    dataset = from_dataset_id("distributed_epoch", target, "mine", data_transfer_protocol="tcp")
    assert element_values(dataset) == list(range(COUNT))
    assert set(used_codecs) == {"LZ4"}


def test_clients_of_one_job_may_differ_in_compression(serve, used_codecs, caplog):
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
            used_codecs.clear()
            dataset = DATASET.apply(transformation)
            assert [int(x[0]) for x in read(dataset.iterator(epoch=epoch))] == list(range(COUNT))
            assert set(used_codecs) == {codec}
    assert not caplog.records
