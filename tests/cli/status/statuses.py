"""States of a service, made up."""

from typing import Any

from stoker.service import status as st


def worker(address: str = "host:1", **fields: Any) -> st.WorkerStatus:
    values: dict[str, Any] = {
        "connected": True,
        "silent_seconds": 0.1,
        "uptime": 100.0,
        "version": "1.2",
        "python": "3.11",
        "numpy": "2",
        "tags": [],
        "data_transfer_addresses": {"tcp": address},
        "draining": False,
        "tasks": 1,
        "active_tasks": 1,
        "shard": None,
        "shared_memory": False,
        "elements_per_second": 50.0,
        "bytes_per_second": 5e6,
    }
    return st.WorkerStatus(address, **values | fields)


def epoch(number: str = "0", **fields: Any) -> st.EpochStatus:
    values: dict[str, Any] = {
        "state": "running",
        "error": "",
        "tasks": 2,
        "running_tasks": 2,
        "clients": 1,
        "elements": 1000,
        "bytes": 10**8,
        "errors": 0,
        "elements_per_second": 100.0,
        "bytes_per_second": 1e7,
        "tasks_lost": 0,
        "splits_lost": 0,
        "elements_lost": 0,
        "poisoned": 0,
    }
    return st.EpochStatus(number, **values | fields)


def client(**fields: Any) -> st.ClientStatus:
    values: dict[str, Any] = {
        "client_id": "7",
        "epoch": "0",
        "connected": True,
        "silent_seconds": 0.2,
        "consumer_index": None,
        "tasks": 2,
        "elements": 900,
        "bytes": 9 * 10**7,
        "elements_per_second": 90.0,
        "bytes_per_second": 9e6,
        "waiting": 0.25,
        "bottleneck": "",
        "sentence": "",
    }
    return st.ClientStatus(**values | fields)


def job(
    name: str = "train",
    epochs: list[st.EpochStatus] | None = None,
    clients: list[st.ClientStatus] | None = None,
) -> st.JobStatus:
    epochs = [epoch()] if epochs is None else epochs
    clients = [client()] if clients is None else clients
    return st.JobStatus(name, True, "data", "DYNAMIC", "AUTO", None, False, epochs, clients)


def status(
    workers: list[st.WorkerStatus],
    jobs: list[st.JobStatus],
    events: list[st.EventStatus] | None = None,
    *,
    uptime: float = 300.0,
    journaled: bool = True,
) -> st.Status:
    return st.Status("1.2", uptime, journaled, workers, jobs, [], events or [])
