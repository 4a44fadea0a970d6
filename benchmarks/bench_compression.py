"""Compression over a throttled link: "AUTO" against never and against each codec always.

    python benchmarks/bench_compression.py [--seconds 6] [--rounds 3] [--rates 12.5 125]
        [--data noise text tokens]

A worker and a trainer, each in a process of its own, and between them a third that lets through so
many megabytes a second (the shaper). What is counted are the bytes of the elements, from `iter()`
on, so what AUTO needs to make up its mind counts against it. Rates of 0 are measured without the
shaper. Everything is measured in turn, every round in another order.
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
WISHES = ("AUTO", "never", "LZ4", "SNAPPY", "ZSTD")
ELEMENT_BYTES = 150_000
BLOCKS = 10  # different ones
READ_BYTES = 64 << 10
KERNEL_BYTES = 256 << 10
"""What the shaper's sockets buffer: a link of 1 Gbit/s with 2 ms holds as much."""


def made_of(kind: str, size: int, generator: np.random.Generator) -> np.ndarray:
    """`size` bytes that compress as such data does."""
    if kind == "noise":
        return generator.integers(0, 256, size, np.uint8)
    if kind == "tokens":
        return generator.zipf(1.3, size // 8).clip(0, 50_000).astype(np.int64).view(np.uint8)
    words = [bytes(generator.integers(97, 123, n, np.uint8)) for n in [2, 3, 4, 5, 6, 7, 8] * 700]
    text = b" ".join(words[i - 1] for i in generator.zipf(1.3, size // 2).clip(1, len(words)))
    return np.frombuffer(text[:size], np.uint8)


def serve(kind: str, rate: float) -> None:
    """A dispatcher and a worker, which trainers reach through a shaper if `rate` is not 0."""
    import stoker
    from stoker.service import DispatchServer, WorkerConfig, WorkerServer, register_dataset

    blocks = [made_of(kind, ELEMENT_BYTES, np.random.default_rng(seed)) for seed in range(BLOCKS)]
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
        for wish in ("AUTO", "LZ4", "SNAPPY", "ZSTD"):
            register_dataset(dispatcher.target, dataset, compression=wish, dataset_id=wish)
        print(dispatcher.target, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def shaper(port: int, rate: float) -> Iterator[str]:
    """The address of a process in front of `port`."""
    command = [sys.executable, __file__, "--shape", str(port), str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()


def shape(port: int, rate: float) -> None:
    """Passes connections on to `port`; what comes back, at `rate` megabytes a second each."""
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
        threading.Thread(target=_pass_on, args=(near, far, 0.0), daemon=True).start()
        threading.Thread(target=_pass_on, args=(far, near, rate), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, rate: float) -> None:
    free_at = time.perf_counter()
    with contextlib.suppress(OSError):
        while data := source.recv(READ_BYTES):
            if rate:
                now = time.perf_counter()
                # A little credit makes up for sleeping too long, and for no more than that.
                free_at = max(free_at, now - 0.03) + len(data) / (rate * 1e6)
                if free_at > now:
                    time.sleep(free_at - now)
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def read(target: str, wish: str, seconds: float, server: int) -> None:
    """Print the megabytes of elements that a trainer gets in a second, and their CPU time.

    The CPU time is that of the trainer and the server's process, in microseconds per element.
    """
    from stoker.service import from_dataset_id

    dataset = from_dataset_id("parallel_epochs", target, wish)
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


def measure_one(kind: str, rate: float, wish: str, seconds: float) -> Figure:
    """Return the elements per second of one wish, over a link of its own."""
    with served(kind, rate) as (target, server):
        line = output_of(__file__, "--read", target, wish, str(seconds), str(server))
    cpu, megabytes = map(float, line.split())
    return Figure(megabytes * 1e6 / ELEMENT_BYTES, cpu=cpu)


BY_DEFAULT = {("text", 12.5, "AUTO"), ("text", 125.0, "AUTO"), ("noise", 125.0, "AUTO")}


def comparison_rows() -> Iterable[Row]:
    """Return a row for every kind of data, link and wish."""
    for kind, rate, wish in product(KINDS, RATES, WISHES):
        yield Row(
            f"compression/{kind}/{rate:g}/{wish}",
            partial(measure_one, kind, rate, wish),
            seconds=2.0,
            default=(kind, rate, wish) in BY_DEFAULT,
        )


def measure(kind: str, rate: float, seconds: float, rounds: int) -> None:
    """Print one row."""
    with served(kind, rate) as (target, server):
        systems = {
            wish: partial(
                in_fresh_process, __file__, "--read", target, wish, str(seconds), str(server)
            )
            for wish in WISHES
        }
        measured = interleaved(systems, rounds)
    others = [wish for wish in WISHES if wish != "AUTO"]
    best = max(others, key=lambda wish: median(measured[wish]))
    ratios = [
        auto / max(measured[wish][number] for wish in others)
        for number, auto in enumerate(measured["AUTO"])
    ]
    rates = " | ".join(f"{median(measured[wish]):,.0f}" for wish in WISHES)
    link = f"{rate:g} MB/s" if rate else "loopback"
    print(
        f"| {kind} | {link} | {rates} | {best} | {median(ratios):.2f}, {min(ratios):.2f} |",
        flush=True,
    )


def main() -> None:
    """Prints the table, or is one of its processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--data", nargs="+", default=KINDS)
    parser.add_argument("--serve", nargs=2)
    parser.add_argument("--shape", nargs=2)
    parser.add_argument("--read", nargs=4)
    words = parser.parse_args()
    if words.serve:
        serve(words.serve[0], float(words.serve[1]))
    elif words.shape:
        shape(int(words.shape[0]), float(words.shape[1]))
    elif words.read:
        read(*words.read[:2], float(words.read[2]), int(words.read[3]))
    else:
        print(f"{machine()}; {words.rounds} rounds of {words.seconds:g} s; MB/s of elements\n")
        print(f"| data | link | {' | '.join(WISHES)} | best fixed | AUTO to the best, least |")
        print("|" + " --- |" * (len(WISHES) + 4))
        for kind, rate in product(words.data, words.rates):
            measure(kind, rate, words.seconds, words.rounds)


if __name__ == "__main__":
    main()
