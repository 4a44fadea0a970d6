"""Copies of a distributed dataset in other processes, of which some are made or read too late."""

import os
import pickle
import signal
import subprocess
import sys
from multiprocessing import context
from typing import Any

import pytest

import stoker
from stoker.errors import FailedPreconditionError
from tests.serving import read

DYNAMIC = "distributed_epoch"
NUMBERS = list(range(10))
MADE_LATE = "epoch 0 of this dataset had ended before this copy of it was made"


def _copy(dataset: stoker.Dataset) -> stoker.Dataset:
    copy = pickle.loads(pickle.dumps(dataset))
    assert isinstance(copy, stoker.Dataset)
    return copy


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "stoker.client"]


def _in_child(dataset: stoker.Dataset) -> str:
    """Return the elements, or the error, of a dataset that a forked child reads."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with os.fdopen(writer, "w") as pipe:
            try:
                pipe.write(str(read(dataset)))
            except FailedPreconditionError as error:
                pipe.write(str(error))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


# ── made after the end ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "mode", ["distributed_epoch", "parallel_epochs", stoker.service.ShardingPolicy.DATA]
)
def test_a_copy_made_after_the_end_is_refused(serve, mode):
    service = serve(1, worker_addresses=["localhost"])
    dataset = stoker.Dataset.range(10).distribute(service.target, mode)
    assert read(dataset) == NUMBERS
    copy = _copy(dataset)
    with pytest.raises(FailedPreconditionError, match=MADE_LATE) as caught:
        read(copy)
    for remedy in ("stoker.torch.IterableDataset", "job_name", "iterator(epoch="):
        assert remedy in str(caught.value)
    assert read(copy) == NUMBERS  # its second epoch, which nobody has read


def test_a_copy_of_an_epoch_left_early_is_refused(serve):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    with dataset.iterator() as iterator:
        next(iterator)
    with pytest.raises(FailedPreconditionError, match=MADE_LATE):
        read(_copy(dataset))


def test_a_later_child_is_refused_also_in_a_later_epoch(serve):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    said = []
    for _ in range(2):
        assert _in_child(dataset) == str(NUMBERS)  # the epoch after those of this process
        said.append(_in_child(dataset))
        assert read(dataset) == []  # this process was there before
    assert MADE_LATE in said[0]
    assert MADE_LATE.replace("epoch 0", "epoch 1") in said[1]


def test_a_restarted_dispatcher_knows_that_the_epoch_has_ended(serve, journal, caplog):
    service = serve(1, **journal)
    dataset = stoker.Dataset.range(10).distribute(service.target, DYNAMIC)
    late = _copy(dataset)
    assert read(dataset) == NUMBERS
    service.restart_dispatcher(**journal)
    with pytest.raises(FailedPreconditionError, match=MADE_LATE):
        read(_copy(dataset))
    assert read(late) == []
    assert _warned(caplog) == [_LATE]


# ── made before the end ──────────────────────────────────────────────────────────────────────────
_LATE = (
    "other copies of this dataset had read epoch 0 before this one began, so this copy gets none "
    "of its elements"
)


def test_a_late_copy_gets_an_empty_epoch_and_one_warning(serve, caplog):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    copy = _copy(dataset)
    assert read(dataset) == NUMBERS
    assert read(copy) == []
    assert read(dataset) == NUMBERS
    assert read(copy) == []
    assert _warned(caplog) == [_LATE]


def test_an_original_that_is_read_after_its_copies_is_late(serve, caplog):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    assert read(_copy(dataset)) == NUMBERS
    assert read(dataset) == []
    assert _warned(caplog) == [_LATE]


def test_a_copy_for_a_child_process_is_as_old_as_the_process(serve):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    popen: Any = object()
    context.set_spawning_popen(popen)  # as `Process.start` does while it pickles the arguments
    try:
        sent = pickle.dumps(dataset)
    finally:
        context.set_spawning_popen(None)
    assert read(dataset) == NUMBERS
    assert read(pickle.loads(sent)) == []  # the child has imported its modules meanwhile


# ── not refused ──────────────────────────────────────────────────────────────────────────────────
def test_a_chosen_epoch_that_has_ended_is_empty(serve, caplog):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    assert read(dataset) == NUMBERS
    assert read(_copy(dataset).iterator(epoch=0)) == []
    assert read(_copy(dataset).iterator(epoch=1)) == NUMBERS
    assert _warned(caplog) == []


def test_repeat_goes_on_after_the_epochs_that_have_ended(serve, caplog):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, DYNAMIC)
    assert read(dataset) + read(dataset) == 2 * NUMBERS
    assert read(_copy(dataset).repeat(3)) == NUMBERS
    assert _warned(caplog) == [_LATE]


def test_a_later_copy_of_a_named_job_gets_a_warning(serve, caplog):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, job_name="one")
    assert read(dataset) == NUMBERS
    assert read(_copy(dataset)) == []
    [warning] = _warned(caplog)
    assert warning.startswith("all elements of the first epoch of job 'one' were read before")


def test_the_warning_is_shown_where_logging_is_not_configured(serve, tmp_path):
    dataset = stoker.Dataset.range(10).distribute(serve(1).target, job_name="one")
    assert read(dataset) == NUMBERS
    (tmp_path / "dataset").write_bytes(pickle.dumps(dataset))
    code = "import pickle, sys; print(list(pickle.load(open(sys.argv[1], 'rb'))))"
    command = [sys.executable, "-c", code, str(tmp_path / "dataset")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
    assert result.stderr.startswith("all elements of the first epoch of job 'one' were read before")
