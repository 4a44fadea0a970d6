"""Run the trials of a hyperparameter search on one input, which is computed once for all of them.

Shows: `CrossTrainerCache`, several trainer processes, the hit rate of the cache in `stats()`.
One machine: python examples/search_shared_cache.py
Several: `stoker dispatcher` and `stoker worker` (docs/deployment.md), then on each trainer, with
its rates: python examples/search_shared_cache.py --service grpc://HOST:5050 --rates 0.1
"""

import argparse
import contextlib
import multiprocessing

import numpy as np

import stoker
from stoker.service import CrossTrainerCache

STEPS = 200
BATCH = 32


def sample(_: int) -> tuple[np.ndarray, np.float32]:
    """Compute a sample; expensive in a real search, so it is computed once for all trials."""
    x = stoker.random.generator().normal(size=4)
    return x, np.float32(x @ [1.0, -2.0, 0.5, 3.0])


def trial(
    service: str, rate: float, losses: "multiprocessing.SimpleQueue[tuple[float, float]]"
) -> None:
    """Train a linear model with one learning rate."""
    dataset = (
        stoker.Dataset.range(1_000)
        .repeat()  # trials stop when they like, so the shared input must not end
        .map(sample)
        .batch(BATCH)
        .distribute(
            service,
            processing_mode="parallel_epochs",
            job_name="search",
            cross_trainer_cache=CrossTrainerCache(trainer_id=f"rate={rate}"),
        )
    )
    weights = np.zeros(4)
    with dataset.iterator() as batches:
        for _ in range(STEPS):
            x, y = next(batches)
            error = x @ weights - y
            weights -= rate * x.T @ error / BATCH
        counts = batches.stats()
    loss = float(np.mean(error**2))
    hits = counts["cache_hits"] / (counts["cache_hits"] + counts["cache_misses"])
    print(f"learning rate {rate}: loss {loss:.2g}, {hits:.0%} from the cache", flush=True)
    losses.put((loss, hits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", help="address of a dispatcher; default: a LocalCluster")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    arguments = parser.parse_args()

    processes = multiprocessing.get_context("spawn")
    losses = processes.SimpleQueue()
    with contextlib.ExitStack() as stack:
        service = arguments.service
        if service is None:
            service = stack.enter_context(stoker.LocalCluster(num_workers=1)).target
        trials = [
            processes.Process(target=trial, args=(service, rate, losses))
            for rate in arguments.rates
        ]
        for process in trials:
            process.start()
        for process in trials:
            process.join()
        assert all(process.exitcode == 0 for process in trials)
    results = [losses.get() for _ in trials]
    assert min(loss for loss, _ in results) < 0.01
    if len(results) > 1:
        assert max(hits for _, hits in results) > 0


if __name__ == "__main__":
    main()
