"""Worker processes repeat the draws of global generators, whatever else they run."""

import os
import random
import threading
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options


def draw(_: int) -> tuple[float, float]:
    first = random.random()
    for _ in range(20):  # other tasks get a chance to draw
        os.sched_yield()
    return first, float(np.random.random())  # noqa: NPY002 - what functions use


def both(cluster: stoker.LocalCluster) -> list[list[Any]]:
    """Read two seeded jobs at the same time."""
    found: list[list[Any]] = [[], []]

    def read(job: int) -> None:
        options = Options(seed=job, seed_globals=True)
        dataset = Dataset.range(1500).map(draw).with_options(options)
        found[job] = list(dataset.distribute(cluster, processing_mode="parallel_epochs"))

    threads = [threading.Thread(target=read, args=(job,)) for job in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_seeded_jobs_in_one_process_both_repeat() -> None:
    with stoker.LocalCluster(1) as cluster:
        first = both(cluster)
    with stoker.LocalCluster(1) as cluster:
        again = both(cluster)
    assert first == again
    assert len({value for job in first for pair in job for value in pair}) == 6000


def test_parallel_calls_with_seeded_generators_warn_once() -> None:
    dataset = Dataset.range(3).map(draw, num_parallel_calls=2).map(draw, num_parallel_calls=2)
    with pytest.warns(UserWarning, match=r"`map` \(.*py:\d+\) one at a time") as found:
        dataset.with_options(Options(seed_globals=True)).distribute("localhost:1")
    assert len(found) == 1
    assert "stoker.random.generator()" in str(found[0].message)
    assert found[0].filename == __file__
