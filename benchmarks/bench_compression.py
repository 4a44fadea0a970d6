"""Compression over a throttled link: "AUTO" against no compression and each fixed codec.

    python benchmarks/bench_compression.py [--seconds 6] [--rounds 3] [--rates 12.5 125]
        [--data noise text tokens]

A worker and a trainer run in separate processes; a third process between them, the shaper, limits
the rate in megabytes per second. The bytes of elements are counted from `iter()` on, so the time
"AUTO" takes to decide counts against it. A rate of 0 is measured without the shaper. Settings are
measured in turn, every round in another order.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

import numpy as np
from harness import Figure, Row, in_fresh_process, interleaved, machine, median, output_of
from service.processes import cpu_seconds

KINDS = ("noise", "text", "tokens")
RATES = (12.5, 125.0, 0.0)
SETTINGS = ("AUTO", "never", "LZ4", "SNAPPY", "ZSTD")
ELEMENT_BYTES = 150_000
BLOCKS = 10  # different ones, yielded in turn
READ_BYTES = 64 << 10
KERNEL_BYTES = 256 << 10
"""Buffer size of the shaper's sockets: the bandwidth-delay product of 1 Gbit/s and 2 ms."""


def random_bytes(kind: str, size: int, generator: np.random.Generator) -> np.ndarray:
    """Return `size` bytes that compress as well as such data does."""
    if kind == "noise":
        return generator.integers(0, 256, size, np.uint8)
    if kind == "tokens":
        return generator.zipf(1.3, size // 8).clip(0, 50_000).astype(np.int64).view(np.uint8)
    words = [bytes(generator.integers(97, 123, n, np.uint8)) for n in [2, 3, 4, 5, 6, 7, 8] * 700]
    text = b" ".join(words[i - 1] for i in generator.zipf(1.3, size // 2).clip(1, len(words)))
    return np.frombuffer(text[:size], np.uint8)


def serve(kind: str, rate: float) -> None:
    """Run a dispatcher and a worker, which trainers reach through a shaper if `rate` is not 0."""
    import stoker
    from stoker.service import DispatchServer, WorkerConfig, WorkerServer, register_dataset

    blocks = [
        random_bytes(kind, ELEMENT_BYTES, np.random.default_rng(seed)) for seed in range(BLOCKS)
    ]
    dataset = stoker.Dataset.range(1 << 40).map(lambda number: blocks[number % BLOCKS].copy())
    with contextlib.ExitStack() as stack:
        dispatcher = stack.enter_context(DispatchServer())
        address = dispatcher.target.split("://")[1]
        fields = {"dispatcher_address": address, "data_transfer_protocol": "tcp"}
        if rate:
            with socket.create_server(("localhost", 0)) as free:
                port = free.getsockname()[1]
            fields["data_transfer_address"] = stack.enter_context(shaper(port, rate))
            fields["port"] = port
        stack.enter_context(WorkerServer(WorkerConfig(**fields)))
        register_dataset(dispatcher.target, dataset, compression=None, dataset_id="never")
        for setting in ("AUTO", "LZ4", "SNAPPY", "ZSTD"):
            register_dataset(dispatcher.target, dataset, compression=setting, dataset_id=setting)
        print(dispatcher.target, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def shaper(port: int, rate: float) -> Iterator[str]:
    """Run a shaper in front of `port`; yield its address."""
    command = [sys.executable, __file__, "--shape", str(port), str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()


def shape(port: int, rate: float) -> None:
    """Forward connections to `port`, and each one's replies at `rate` megabytes per second."""
    with socket.create_server(("localhost", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        print(f"localhost:{listener.getsockname()[1]}", flush=True)
        threading.Thread(target=_accept, args=(listener, port, rate), daemon=True).start()
        sys.stdin.read()


def _accept(listener: socket.socket, port: int, rate: float) -> None:
    while True:
        near = listener.accept()[0]
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        far.connect(("localhost", port))
        threading.Thread(target=_forward, args=(near, far, 0.0), daemon=True).start()
        threading.Thread(target=_forward, args=(far, near, rate), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, rate: float) -> None:
    free_at = time.perf_counter()
    with contextlib.suppress(OSError):
        while data := source.recv(READ_BYTES):
            if rate:
                now = time.perf_counter()
                # Up to 30 ms of credit makes up for `sleep` that returns late.
                free_at = max(free_at, now - 0.03) + len(data) / (rate * 1e6)
                if free_at > now:
                    time.sleep(free_at - now)
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def read(target: str, setting: str, seconds: float, server: int) -> None:
    """Print the CPU microseconds per element of trainer and server, and the MB/s of elements."""
    from stoker.service import from_dataset_id

    dataset = from_dataset_id("parallel_epochs", target, setting)
    processes = [os.getpid(), server]
    cpu = cpu_seconds(processes)
    began = time.perf_counter()
    size = count = 0
    with dataset.iterator() as iterator:
        for element in iterator:
            size += element.nbytes
            count += 1
            if time.perf_counter() - began >= seconds:
                break
        elapsed = time.perf_counter() - began
        cpu = cpu_seconds(processes) - cpu
    print(cpu / count * 1e6, size / elapsed / 1e6)


@contextlib.contextmanager
def served(kind: str, rate: float) -> Iterator[tuple[str, int]]:
    """Yield the target and the process id of a server for one row."""
    command = [sys.executable, __file__, "--serve", kind, str(rate)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.stdin.close()


def measure_one(kind: str, rate: float, setting: str, seconds: float) -> Figure:
    """Return the elements per second with one setting, over a separate link."""
    with served(kind, rate) as (target, server):
        line = output_of(__file__, "--read", target, setting, str(seconds), str(server))
    cpu, megabytes = map(float, line.split())
    return Figure(megabytes * 1e6 / ELEMENT_BYTES, cpu=cpu)


BY_DEFAULT = {("text", 12.5, "AUTO"), ("text", 125.0, "AUTO")}


def comparison_rows() -> Iterable[Row]:
    """Return a row for every kind of data, link and setting."""
    for kind, rate, setting in product(KINDS, RATES, SETTINGS):
        yield Row(
            f"compression/{kind}/{rate:g}/{setting}",
            partial(measure_one, kind, rate, setting),
            seconds=2.0,
            default=(kind, rate, setting) in BY_DEFAULT,
        )


def measure(kind: str, rate: float, seconds: float, rounds: int) -> None:
    """Measure one kind of data over one link; print the row."""
    with served(kind, rate) as (target, server):
        systems = {
            setting: partial(
                in_fresh_process, __file__, "--read", target, setting, str(seconds), str(server)
            )
            for setting in SETTINGS
        }
        measured = interleaved(systems, rounds)
    others = [setting for setting in SETTINGS if setting != "AUTO"]
    best = max(others, key=lambda setting: median(measured[setting]))
    ratios = [
        auto / max(measured[setting][number] for setting in others)
        for number, auto in enumerate(measured["AUTO"])
    ]
    rates = " | ".join(f"{median(measured[setting]):,.0f}" for setting in SETTINGS)
    link = f"{rate:g} MB/s" if rate else "loopback"
    print(
        f"| {kind} | {link} | {rates} | {best} | {median(ratios):.2f}, {min(ratios):.2f} |",
        flush=True,
    )


def main() -> None:
    """Print the table, or run one of its processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--data", nargs="+", default=KINDS)
    parser.add_argument("--serve", nargs=2)
    parser.add_argument("--shape", nargs=2)
    parser.add_argument("--read", nargs=4)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], float(options.serve[1]))
    elif options.shape:
        shape(int(options.shape[0]), float(options.shape[1]))
    elif options.read:
        read(*options.read[:2], float(options.read[2]), int(options.read[3]))
    else:
        print(f"{machine()}; {options.rounds} rounds of {options.seconds:g} s; MB/s of elements\n")
        print(f"| data | link | {' | '.join(SETTINGS)} | best fixed | AUTO to the best, lowest |")
        print("|" + " --- |" * (len(SETTINGS) + 4))
        for kind, rate in product(options.data, options.rates):
            measure(kind, rate, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
