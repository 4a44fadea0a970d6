"""File names that are not UTF-8, and names given by users that cannot be sent."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.compat import tf
from stoker.errors import InvalidArgumentError
from stoker.service import (
    DispatcherConfig,
    WorkerConfig,
    distribute,
    from_dataset_id,
    register_dataset,
)
from tests.serving import Service, read

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")

NAMES = [b"caf\xe9.txt", "caf\u00e9.txt".encode(), b"\xff\xfe", b"plain", b"\xc3", b"\xa9"]
"""The last two form one character of UTF-8 when they are joined."""


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"<" + name + b">")
    return tmp_path


@pytest.fixture(scope="module")
def service():
    with Service(2) as service:
        yield service


def _names(paths: list[str]) -> list[bytes]:
    return sorted(os.fsencode(Path(path).name) for path in paths)


def test_paths_of_any_bytes_are_listed_locally(folder):
    assert _names(list(stoker.Dataset.list_files(f"{folder}/*"))) == sorted(NAMES)


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
@pytest.mark.parametrize("transport", ["local", "shm", "tcp"])
def test_paths_of_any_bytes_are_listed_by_workers(service, folder, mode, transport):
    dataset = stoker.Dataset.list_files(f"{folder}/*")
    paths = read(
        dataset.distribute(service.target, processing_mode=mode, data_transfer_protocol=transport)
    )
    assert _names(paths) == sorted(NAMES * (2 if mode == "parallel_epochs" else 1))


def test_files_of_any_name_are_read_by_workers(service, folder):
    dataset = stoker.Dataset.list_files(f"{folder}/*").map(lambda path: Path(path).read_bytes())
    contents = read(dataset.distribute(service.target))
    assert sorted(contents) == sorted(b"<" + name + b">" for name in NAMES)


def test_batches_of_such_paths_arrive(service, folder):
    batches = read(stoker.Dataset.list_files(f"{folder}/*").batch(6).distribute(service.target))
    assert _names(np.concatenate(batches).tolist()) == sorted(NAMES)


def test_missing_file_of_such_a_name_is_an_error_with_its_name(service):
    dataset = stoker.Dataset.text_lines(["/nowhere/caf\udce9.txt"])
    with pytest.raises(stoker.errors.NotFoundError, match=r"caf\\udce9\.txt"):
        read(dataset.distribute(service.target, processing_mode="parallel_epochs"))


def test_pattern_that_is_not_utf8_is_listed_by_workers(service, folder):
    dataset = stoker.Dataset.list_files(f"{folder}/caf\udce9*")
    assert _names(list(dataset)) == [b"caf\xe9.txt"]
    assert _names(read(dataset.distribute(service.target))) == [b"caf\xe9.txt"]


def test_pattern_that_is_no_file_name_is_refused_where_it_is_distributed(service):
    dataset = stoker.Dataset.list_files("/nowhere/\ud800*")
    with pytest.raises(InvalidArgumentError, match=r"`list_files` .*cannot be encoded as UTF-8"):
        dataset.distribute(service.target)


def test_path_of_any_bytes_is_tensorflows_under_compat(folder):
    paths = list(tf.data.Dataset.list_files(f"{folder}/*").as_numpy_iterator())
    assert _names(list(map(os.fsdecode, paths))) == sorted(NAMES)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("job_name", lambda text: distribute("parallel_epochs", "h:1", job_name=text)),
        ("service", lambda text: distribute("parallel_epochs", f"{text}:1")),
        ("service", lambda text: distribute("parallel_epochs", ("grpc", f"{text}:1"))),
        ("dataset_id", lambda text: from_dataset_id("parallel_epochs", "h:1", text)),
        (
            "dataset_id",
            lambda text: register_dataset("h:1", stoker.Dataset.range(1), dataset_id=text),
        ),
        ("worker_tags", lambda text: WorkerConfig(dispatcher_address="h:1", worker_tags=[text])),
        ("dispatcher_address", lambda text: WorkerConfig(dispatcher_address=f"{text}:1")),
        (
            "worker_address",
            lambda text: WorkerConfig(dispatcher_address="h:1", worker_address=text),
        ),
        (
            "data_transfer_address",
            lambda text: WorkerConfig(dispatcher_address="h:1", data_transfer_address=text),
        ),
        ("host", lambda text: DispatcherConfig(host=text, insecure=True)),
    ],
)
def test_name_that_cannot_be_sent_is_refused_at_once(name, make):
    with pytest.raises(InvalidArgumentError, match=rf"`{name}` must be text .* got .*\\ud800"):
        make("\ud800")


def test_message_that_cannot_be_sent_fails_the_read(service, monkeypatch):
    monkeypatch.setattr("stoker.service.api.read_options.check_text", lambda name, value: None)
    dataset = stoker.Dataset.range(3).distribute(service.target, job_name="\ud800")
    with pytest.raises(InvalidArgumentError, match="ClientHello message cannot be encoded"):
        read(dataset)


def test_listing_that_cannot_be_sent_fails_the_read(service, folder, monkeypatch):
    monkeypatch.setattr(
        "stoker.service.worker.pipelines.listing.split_to_wire", lambda value: object()
    )
    with pytest.raises(InvalidArgumentError, match="the splits of source 0 cannot be sent"):
        read(
            stoker.Dataset.list_files(f"{folder}/*").distribute(
                service.target, processing_mode="distributed_epoch"
            )
        )


def test_key_that_cannot_be_sent_is_named(service):
    dataset = stoker.Dataset.from_tensor_slices({"\ud800": [1, 2]})
    assert list(dataset) == [{"\ud800": 1}, {"\ud800": 2}]
    with pytest.raises(InvalidArgumentError, match=r"the key '\\ud800' of an element_spec"):
        dataset.distribute(service.target)
