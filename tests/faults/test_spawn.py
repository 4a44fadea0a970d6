"""Pickled distributed datasets in processes that have imported nothing yet."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from tests.serving import Service, read

LOADERS = """
import dataclasses, json, multiprocessing, sys, typing, stoker

class Point(typing.NamedTuple):
    x: int

@dataclasses.dataclass
class Sample:
    point: Point

def read(dataset, found):
    own = [type(element) is Sample and type(element.point) is Point for element in dataset]
    found.put(own)

if __name__ == "__main__":
    with stoker.LocalCluster(1) as cluster:
        dataset = stoker.Dataset.range(100).map(lambda x: Sample(Point(x)))
        dataset = dataset.distribute(cluster, processing_mode="distributed_epoch")
        context = multiprocessing.get_context(sys.argv[1])
        found = context.SimpleQueue()
        children = [context.Process(target=read, args=(dataset, found)) for _ in range(2)]
        for child in children:
            child.start()
        print(json.dumps([found.get() for _ in children]))
        for child in children:
            child.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_copies_in_loaders_share_the_job_and_the_classes(method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADERS)
    command = [sys.executable, str(script), method]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr
    one, other = json.loads(result.stdout)
    assert [*one, *other] == [True] * 100


TRAINERS = """
import dataclasses, json, multiprocessing, sys, stoker

@dataclasses.dataclass
class Sample:
    x: int

def square(x):
    return Sample(x * x)

def train(service, found):
    dataset = stoker.Dataset.range(4).map(square).distribute(service)
    elements = sorted(dataset, key=lambda sample: sample.x)
    found.put([type(element) is Sample and element.x for element in elements])

if __name__ == "__main__":
    with stoker.LocalCluster(1) as cluster:
        context = multiprocessing.get_context(sys.argv[1])
        found = context.SimpleQueue()
        child = context.Process(target=train, args=(cluster.target, found))
        child.start()
        child.join()
        print([] if child.exitcode else json.dumps(found.get()))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_trainers_send_functions_of_the_program(method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINERS)
    command = [sys.executable, str(script), method]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(result.stdout) == [0, 1, 4, 9], result.stderr


def test_a_pickle_file_is_read_by_another_script(tmp_path: Path) -> None:
    writer = (
        "import pickle, sys, stoker\n"
        "dataset = stoker.Dataset.range(5).map(lambda x: 2 * x).distribute(sys.argv[1])\n"
        "pickle.dump(dataset.map(lambda x: x + 1), open(sys.argv[2], 'wb'))\n"
    )
    reader = "import pickle, sys; print(list(pickle.load(open(sys.argv[2], 'rb'))))"
    with Service(1) as service:
        arguments = [service.target, str(tmp_path / "dataset")]
        for code in (writer, reader):
            command = [sys.executable, "-c", code, *arguments]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            assert not result.returncode, result.stderr
    assert result.stdout == "[1, 3, 5, 7, 9]\n"


def test_a_function_may_capture_a_distributed_dataset() -> None:
    with stoker.LocalCluster(1) as cluster:
        inner = stoker.Dataset.range(3).distribute(cluster, processing_mode="parallel_epochs")
        outer = stoker.Dataset.range(1).map(lambda _: sum(inner)).distribute(cluster)
        assert read(outer) == [3]
