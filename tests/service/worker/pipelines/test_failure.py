import pickle
from typing import Any

import pytest

import stoker
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.tree.node import Context
from stoker.errors import NotFoundError, PoisonedElementError, UserFunctionError, from_record
from stoker.service.worker.pipelines.failure import LONGEST_TEXT, describe

ORIGIN = Origin("map", "train.py:12", 5, "'a.jpg'")


def _raised(error: Any) -> Any:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_user_error_has_message_site_and_traceback():
    error = mark_failure(_raised(ValueError("bad")), ORIGIN)
    record = describe(error, "host:1", 7)
    assert (record.code, record.exception) == ("UserFunctionError", "ValueError")
    assert (record.worker, record.node, record.site, record.element) == (
        "host:1",
        "map",
        "train.py:12",
        7,
    )
    assert record.message == (
        "ValueError: bad (raised by the function of `map`, train.py:12, for the input 'a.jpg', "
        "at element 5, on worker host:1)"
    )
    assert record.remote_traceback.startswith("Traceback (most recent call last):\n")
    assert "in _raised" in record.remote_traceback
    assert "element" not in record.remote_traceback  # the message names it


def test_stoker_error_keeps_its_class():
    record = describe(NotFoundError("no such file"), "host:1", 0)
    assert type(from_record(record)) is NotFoundError
    assert record.message == "no such file"


def test_poisoned_element_keeps_its_class_and_place():
    raised = PoisonedElementError("it killed workers")
    record = describe(mark_failure(raised, Origin("map", "train.py:12", 3)), "host:1", 5)
    error = pickle.loads(pickle.dumps(from_record(record)))
    assert type(error) is PoisonedElementError
    assert str(error) == "it killed workers (`map`, train.py:12, on worker host:1)"
    assert (error.worker, error.node, error.site) == ("host:1", "map", "train.py:12")
    assert error.element == 5


def test_error_of_unknown_origin_names_worker_and_element():
    record = describe(_raised(OSError("disk")), "host:1", 3)
    error = from_record(record)
    assert isinstance(error, UserFunctionError)
    assert str(error).startswith("worker host:1 failed at element 3: OSError: disk")
    assert error.element == 3


def test_traceback_has_the_users_frames_only(caplog):
    def outer(x):
        return list(stoker.Dataset.from_tensors(x).map(inner))

    def inner(_):
        raise ValueError("bad")

    stream = open_stream(stoker.Dataset.from_tensors(1).map(outer).node, Context())
    with pytest.raises(ValueError) as caught:
        stream.next()
    with caplog.at_level("DEBUG", "stoker.worker"):
        text = describe(caught.value, "host:1", 0).remote_traceback
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("  File")] == [
        "test_traceback_has_the_users_frames_only",
        "outer",
        "inner",
    ]
    assert "next_chunk" in caplog.text


def test_causes_omit_frames_of_stoker():
    def inside():
        describe(None, "", 0)  # type: ignore[arg-type]  # fails in a stoker frame

    try:
        try:
            inside()
        except AttributeError as cause:
            raise ValueError("outer") from cause
        else:
            raise ValueError("outer")
    except ValueError as error:
        record = describe(error, "host:1", 0)
    assert "ValueError: outer" in record.remote_traceback


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


@pytest.mark.parametrize("mark", [False, True])
def test_exception_with_failing_str_is_described(mark):
    error = _raised(_Unprintable())
    if mark:
        error = mark_failure(error, ORIGIN)
    record = describe(error, "host:1", 0)
    assert "its __str__ raised RuntimeError" in record.message
    assert "_Unprintable" in record.remote_traceback


@pytest.mark.parametrize("kind", [ValueError, NotFoundError])
def test_record_can_always_be_encoded(kind):
    record = describe(_raised(kind("file \udcff")), "host:1", 0)
    assert "\\udcff" in record.message
    record.message.encode()
    record.remote_traceback.encode()


@pytest.mark.parametrize("kind", [ValueError, NotFoundError])
def test_long_message_is_shortened_in_its_middle(kind):
    record = describe(_raised(kind("a" + "m" * 3 * LONGEST_TEXT + "z")), "host:1", 0)
    assert len(record.message) < LONGEST_TEXT + 500
    assert len(record.remote_traceback) < LONGEST_TEXT + 500
    assert "characters left out" in record.message
    assert record.message.count("a") >= 1
    assert "mz" in record.message


def test_sys_exit_is_described():
    record = describe(_raised(SystemExit(3)), "host:1", 0)
    assert (record.code, record.exception) == ("UserFunctionError", "SystemExit")
