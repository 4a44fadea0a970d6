import pickle

import pytest

import stoker
from stoker.dataset.tree.structure import source_summary
from stoker.dataset.tree.wire_form import encode_tree
from stoker.service import ShardingPolicy, distribute, from_dataset_id
from stoker.service.api.read_options import ReadOptions
from stoker.service.api.registration import registration_of
from stoker.service.api.source import Distributed
from stoker.service.messages import JobParameters
from tests.serving import Service, read

ADDRESS = "localhost:5050"


def _node(dataset: stoker.Dataset) -> Distributed:
    assert isinstance(dataset.node, Distributed)
    return dataset.node


def _job(dataset: stoker.Dataset) -> str:
    job: str = _node(dataset).hello.value.job
    return job


def test_distributing_opens_no_connection():
    dataset = stoker.Dataset.range(3).distribute(ADDRESS)
    spec = "element_spec=TensorSpec(shape=(), dtype=int64)"
    assert repr(dataset) == f"<Dataset distribute(deterministic_epoch) {spec}>"


def test_registration_describes_the_whole_dataset():
    dataset = stoker.Dataset.range(3).map(lambda x: x).with_options(stoker.Options(seed=5))
    registration = registration_of(dataset, None)
    assert registration.tree == encode_tree(dataset.node)
    assert registration.sources == source_summary(dataset.node)
    assert registration.options == stoker.Options(seed=5)
    assert (registration.runs_python, registration.compression) == (True, None)
    assert not registration_of(stoker.Dataset.range(3), None).runs_python


@pytest.mark.parametrize(
    "other",
    [
        (stoker.Dataset.range(3), None),
        (stoker.Dataset.range(4), "AUTO"),
        (stoker.Dataset.range(3).with_options(stoker.Options(seed=1)), "AUTO"),
    ],
)
def test_digest_depends_on_the_whole_dataset(other):
    base = stoker.Dataset.range(3)
    assert registration_of(base, "AUTO").digest == registration_of(base, "AUTO").digest
    assert registration_of(*other).digest != registration_of(base, "AUTO").digest


def test_each_application_is_another_anonymous_job():
    transformation = distribute("distributed_epoch", ADDRESS)
    one, other = (stoker.Dataset.range(3).apply(transformation) for _ in range(2))
    assert _job(one) != _job(other)


def test_pickled_copy_shares_the_job_and_its_epochs():
    with Service(1) as service:
        dataset = stoker.Dataset.range(10).distribute(
            service.target, processing_mode="distributed_epoch"
        )
        copy = pickle.loads(pickle.dumps(dataset))
        assert _job(copy) == _job(dataset)
        assert read(dataset) == list(range(10))
        assert read(copy) == []
        assert read(copy) == list(range(10))


def test_job_names_by_id_are_prefixed_with_the_id():
    spec = stoker.UnknownSpec()
    dataset = from_dataset_id("parallel_epochs", ADDRESS, "d", element_spec=spec, job_name="j")
    assert _job(dataset) == "d/j"
    assert dataset.cardinality() == stoker.UNKNOWN_CARDINALITY


def test_arguments_become_read_options():
    dataset = stoker.Dataset.range(3).distribute(
        ("grpc", ADDRESS),
        processing_mode=ShardingPolicy.OFF,
        job_name="j",
        max_outstanding_requests=3,
        data_transfer_protocol="tcp",
        target_workers="any",
        connect_timeout=1.5,
        buffer_bytes=1 << 20,
    )
    node = _node(dataset)
    assert node.read_options.value == ReadOptions(
        processing_mode=ShardingPolicy.OFF,
        dispatcher_address=ADDRESS,
        job_name="j",
        max_outstanding_requests=3,
        data_transfer_protocol="tcp",
        target_workers="ANY",
        connect_timeout=1.5,
        buffer_bytes=1 << 20,
    )
    hello = node.hello.value
    assert (hello.job, hello.named) == ("j", True)
    assert hello.parameters == JobParameters(ShardingPolicy.OFF, "ANY")
