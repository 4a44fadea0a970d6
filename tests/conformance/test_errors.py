"""Errors reach the client complete, in their element's position, and name the remedy."""

import io
import sys
import threading
import traceback

import cloudpickle  # type: ignore[import-untyped]
import msgspec
import numpy as np
import pytest

import stoker
from stoker.dataset.tree.wire_form import encode_tree
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UserFunctionError,
)
from stoker.service import distribute, messages, register_dataset
from stoker.service.control import rpc
from tests.serving import iterator_with_deadline, outcomes, read

LOCK = threading.Lock()


def _fails_at_three(i: int) -> int:
    if i == 3:
        raise KeyError("three")
    return i


def test_user_error_names_worker_node_site_and_element(serve, transport):
    service = serve()
    dataset = stoker.Dataset.range(10).map(_fails_at_three)
    line = _fails_at_three.__code__.co_firstlineno
    site_line = test_user_error_names_worker_node_site_and_element
    dataset = dataset.distribute(service.target, data_transfer_protocol=transport)
    with pytest.raises(UserFunctionError) as caught:
        read(dataset)
    error = caught.value
    assert error.worker == service.workers[0].address
    assert error.node == "map"
    assert error.site == f"tests/conformance/test_errors.py:{site_line.__code__.co_firstlineno + 2}"
    assert error.element == 3
    assert error.exception == "KeyError"
    assert f'test_errors.py", line {line + 2}, in _fails_at_three' in error.remote_traceback
    assert 'raise KeyError("three")' in error.remote_traceback
    assert "stoker/dataset" not in error.remote_traceback
    for part in (
        error.worker,
        error.site,
        "KeyError",
        "three",
        "map",
        error.remote_traceback.strip(),
    ):
        assert part in str(error)
    assert f"{error.site}, for the input 3, at element 3, on worker" in str(error)
    shown = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert not {"next_chunk", "_take"} & set(shown)


def test_error_replaces_its_element_and_reading_continues(serve, transport):
    dataset = (
        stoker.Dataset.range(6)
        .map(_fails_at_three)
        .apply(distribute("parallel_epochs", serve().target, data_transfer_protocol=transport))
    )
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert [x for x in found if not isinstance(x, Exception)] == [0, 1, 2, 4, 5]
    assert isinstance(found[3], UserFunctionError)
    assert iterator.stats()["errors"] == 1


@pytest.mark.parametrize("threads", [None, 2])
def test_many_errors_keep_their_positions(serve, transport, threads):
    def odd(i):
        if i % 2:
            raise ValueError(i)
        return i

    dataset = (
        stoker.Dataset.range(100)
        .map(odd, num_parallel_calls=threads)
        .apply(distribute("parallel_epochs", serve().target, data_transfer_protocol=transport))
    )
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert len(found) == 100
    assert found[::2] == list(range(0, 100, 2))
    assert [error.element for error in found[1::2]] == list(range(1, 100, 2))


def test_batch_with_a_failing_element_fails(serve):
    dataset = (
        stoker.Dataset.range(6)
        .map(_fails_at_three)
        .batch(2)
        .apply(distribute("parallel_epochs", serve().target))
    )
    with iterator_with_deadline(dataset) as iterator:
        first, error, last = outcomes(iterator)
    assert (first.tolist(), last.tolist()) == ([0, 1], [4, 5])
    assert isinstance(error, UserFunctionError)
    assert error.node == "map"


def test_error_with_one_outstanding_request_is_not_final(serve, transport):
    dataset = (
        stoker.Dataset.range(6)
        .map(_fails_at_three)
        .distribute(serve().target, max_outstanding_requests=1, data_transfer_protocol=transport)
    )
    with iterator_with_deadline(dataset) as iterator:
        assert len(outcomes(iterator)) == 6


def test_yielded_error_is_not_returned_to_the_job(serve, transport):
    dataset = (
        stoker.Dataset.range(10)
        .map(_fails_at_three)
        .repeat()
        .apply(
            distribute(
                "parallel_epochs",
                serve().target,
                job_name="one",
                data_transfer_protocol=transport,
            )
        )
    )
    with dataset.iterator(epoch=0) as first:
        assert read(first, 3) == [0, 1, 2]
        with pytest.raises(UserFunctionError):
            next(first)
    with dataset.iterator(epoch=0) as second:
        assert read(second, 3) == [4, 5, 6]


def test_errors_name_the_node_of_the_function(serve):
    target = serve().target

    def fail(*x):
        raise RuntimeError("no")

    one = stoker.Dataset.range(1)
    for kind, dataset in {
        "map": one.map(fail),
        "filter": one.filter(fail),
        "flat_map": one.flat_map(fail),
        "from_generator": stoker.Dataset.from_generator(fail),
    }.items():
        with pytest.raises(UserFunctionError, match="no") as caught:
            read(dataset.apply(distribute("parallel_epochs", target)))
        assert (kind, caught.value.node) == (kind, kind)
        assert caught.value.site.startswith("tests/conformance/test_errors.py:")


def test_stoker_error_raised_by_user_code_is_a_user_error(serve):
    def fail(i):
        raise InvalidArgumentError("mine")

    with pytest.raises(UserFunctionError, match="mine") as caught:
        read(stoker.Dataset.range(1).map(fail).distribute(serve().target))
    assert caught.value.exception == "InvalidArgumentError"


@pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("threads", [None, 2])
def test_exit_exceptions_are_errors_and_the_worker_lives(serve, exception, threads):
    def leave(i):
        if i == 1:
            raise exception("leaving")
        return i

    service = serve()
    dataset = stoker.Dataset.range(3).map(leave, num_parallel_calls=threads)
    with iterator_with_deadline(dataset.distribute(service.target)) as iterator:
        found = outcomes(iterator)
    errors = [x for x in found if isinstance(x, UserFunctionError)]
    assert [error.exception for error in errors] == [exception.__name__]
    assert "leaving" in str(errors[0])
    assert read(stoker.Dataset.range(3).distribute(service.target)) == [0, 1, 2]


def test_unpicklable_exception_arrives(serve, transport):
    def fail(i):
        class Odd(Exception):
            def __str__(self):
                raise ValueError("cannot print")

        raise Odd(threading.Lock())

    dataset = stoker.Dataset.range(2).map(fail)
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert [error.exception for error in found] == ["Odd", "Odd"]


def test_message_with_surrogates_arrives(serve, transport):
    def fail(i):
        raise ValueError("\udcff" + "x" * 10)

    dataset = stoker.Dataset.range(1).map(fail)
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    with pytest.raises(UserFunctionError, match="xxxxxxxxxx"):
        read(dataset)


def test_recursion_error_arrives(serve):
    def recurse(i):
        return recurse(i + 1)

    with pytest.raises(UserFunctionError, match="RecursionError"):
        read(stoker.Dataset.range(1).map(recurse).distribute(serve().target))


def test_long_message_and_chained_cause_arrive(serve):
    def fail(i):
        try:
            raise OSError("the first cause")
        except OSError as error:
            raise ValueError("m" * 100_000) from error

    with pytest.raises(UserFunctionError) as caught:
        read(stoker.Dataset.range(1).map(fail).distribute(serve().target))
    assert "m" * 100_000 in caught.value.args[0]
    assert "the first cause" in caught.value.remote_traceback


def test_oversized_message_arrives_shortened(serve, transport):
    def fail(i):
        raise ValueError("head" + "m" * 40_000_000 + "tail")

    dataset = stoker.Dataset.range(1).map(fail)
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    with pytest.raises(UserFunctionError, match=r"head.*left out.*tail"):
        read(dataset)


def test_user_function_may_print(serve, capsys):
    def speak(i):
        print("element", i)  # noqa: T201
        return i

    assert read(stoker.Dataset.range(2).map(speak).distribute(serve().target)) == [0, 1]
    assert capsys.readouterr().out == "element 0\nelement 1\n"


def test_unpicklable_global_is_named_by_distribute(serve):
    dataset = stoker.Dataset.range(1).map(lambda i: LOCK.locked())
    with pytest.raises(InvalidArgumentError, match=r"`LOCK` \(a _thread.lock\).*cannot be pickled"):
        dataset.distribute(serve().target)


def test_unpicklable_captured_variable_is_named(serve):
    stream = io.TextIOWrapper(io.BytesIO())
    dataset = stoker.Dataset.range(1).map(lambda i: stream.name)
    with pytest.raises(InvalidArgumentError, match="`stream`"):
        register_dataset(serve().target, dataset)


def _with_missing_module(monkeypatch, count: int) -> stoker.Dataset:
    """Return a dataset whose pickled function imports a module that does not exist."""
    module = type(sys)("absent_module_of_stoker")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def double(x): return 2 * x", module.__dict__)
    blob = cloudpickle.dumps(module.double)
    monkeypatch.delitem(sys.modules, module.__name__)
    return _with_blob(stoker.Dataset.range(count).map(lambda x: x), blob)


def _with_blob(dataset: stoker.Dataset, blob: bytes) -> stoker.Dataset:
    from stoker.dataset.pickling.pickled import Pickled

    node = msgspec.structs.replace(dataset.node, function=Pickled.from_blob(blob))
    return stoker.Dataset(node, stoker.Options())


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_missing_module_is_one_error_that_names_it(serve, monkeypatch, transport, mode):
    dataset = _with_missing_module(monkeypatch, 5)
    dataset = dataset.apply(distribute(mode, serve(1).target, data_transfer_protocol=transport))
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert {type(x) for x in found} == {FailedPreconditionError}
    assert "'absent_module_of_stoker', which is not installed" in str(found[0])
    assert len(found) == 1


def test_unsupported_element_is_an_error_in_its_position(serve):
    dataset = (
        stoker.Dataset.range(5)
        .map(lambda i: {i} if i == 2 else i)
        .apply(distribute("parallel_epochs", serve().target, data_transfer_protocol="tcp"))
    )
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert [x for x in found if not isinstance(x, Exception)] == [0, 1, 3, 4]
    assert isinstance(found[2], InvalidArgumentError)
    assert "set" in str(found[2])


def test_elements_of_many_structures_arrive(serve):
    def grow(i):
        return {f"key {i} {k}": k for k in range(200)}

    dataset = stoker.Dataset.range(300).map(grow)
    dataset = dataset.distribute(serve().target, data_transfer_protocol="tcp")
    assert [len(x) for x in read(dataset)] == [200] * 300


def test_version_mismatch_names_both_versions(serve, monkeypatch):
    here = messages.Versions("3.9", "1")
    monkeypatch.setattr(sys.modules["stoker.service.api.registration"], "versions", lambda: here)
    dataset = stoker.Dataset.range(3).map(lambda x: x).distribute(serve(2).target)
    with pytest.raises(
        FailedPreconditionError, match=r"Python 3\.9 with NumPy 1.*workers run"
    ) as caught:
        read(dataset)
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in str(caught.value)


def test_dataset_without_functions_runs_on_any_version(serve, monkeypatch):
    here = messages.Versions("3.9", "1")
    monkeypatch.setattr(sys.modules["stoker.service.api.registration"], "versions", lambda: here)
    assert read(stoker.Dataset.range(3).distribute(serve().target)) == [0, 1, 2]


def test_late_worker_of_another_version_is_one_error(serve, monkeypatch):
    here = messages.Versions("3.9", "1")
    monkeypatch.setattr(sys.modules["stoker.service.api.registration"], "versions", lambda: here)
    service = serve(0)
    dataset = stoker.Dataset.range(3).map(lambda x: x).distribute(service.target)
    with dataset.iterator() as iterator:
        service.add_worker()
        with pytest.raises(FailedPreconditionError, match=r"Python 3\.9 with NumPy 1"):
            read(iterator, deadline=3)


def test_unknown_node_is_one_error(serve):
    service = serve()
    tree = msgspec.msgpack.decode(encode_tree(stoker.Dataset.range(3).node))
    tree[0][0] = "from_the_future"
    registration = messages.RegisterDataset(
        digest="d", tree=msgspec.msgpack.encode(tree), spec={"kind": "unknown"}, dataset_id="future"
    )
    reply = rpc.call(service.target.removeprefix("grpc://"), registration, 5)
    assert reply == messages.DatasetRegistered("future")
    dataset = stoker.service.from_dataset_id("parallel_epochs", service.target, "future")
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert len(found) == 1
    assert "'from_the_future' is not known" in str(found[0])


def test_source_that_fails_to_open_ends_the_epoch(serve, transport):
    dataset = stoker.Dataset.list_files("/no/such/place/*.jpg").apply(
        distribute("parallel_epochs", serve().target, data_transfer_protocol=transport)
    )
    with iterator_with_deadline(dataset) as iterator:
        found = outcomes(iterator)
    assert len(found) == 1
    assert isinstance(found[0], stoker.errors.NotFoundError)
    assert "/no/such/place/*.jpg" in str(found[0])


def test_failure_to_list_splits_is_one_error(serve):
    dataset = stoker.Dataset.list_files("/no/such/place/*.jpg").distribute(
        serve(2).target, processing_mode="distributed_epoch"
    )
    with pytest.raises(stoker.errors.NotFoundError, match="/no/such/place"):
        read(dataset)


def test_object_array_of_unsupported_type_is_an_error(serve):
    dataset = stoker.Dataset.range(1).map(lambda i: np.array([object()], object))
    with pytest.raises(InvalidArgumentError, match="object"):
        read(dataset.distribute(serve().target, data_transfer_protocol="tcp"))
