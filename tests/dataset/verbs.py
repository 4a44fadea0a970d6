"""However a stream is read, it is the same stream: the check that every node's tests make."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.elements.structure import children, is_leaf, rebuild


def opened(dataset: Dataset, **context: Any) -> Stream:
    return open_stream(
        dataset.node, Context(**{"seed": 11, "epoch": (2,), "make_dataset": Dataset, **context})
    )


def plain(value: Any) -> Any:
    """The value as builtins that compare; datasets as the list of their elements."""
    if isinstance(value, Dataset):
        return [plain(element) for element in value.iterator(epoch=0)]
    if not is_leaf(value):
        return rebuild(value, [plain(member) for _, member in children(value)])
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def failed(error: Exception) -> Any:
    return ("raised", type(error).__name__, str(error))


def positions(stream: Stream, count: int = 10_000) -> list[Any]:
    """What `count` calls of `next` give, elements and errors; fewer at the end."""
    found: list[Any] = []
    while len(found) < count:
        try:
            found.append(plain(stream.next()))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
    return found


def tape(dataset: Dataset, **context: Any) -> list[Any]:
    """All positions of a pass, elements and errors."""
    stream = opened(dataset, **context)
    try:
        return positions(stream)
    finally:
        stream.close()


def tape_by(rounds: list[tuple[str, int]], stream: Stream) -> list[Any]:
    """All positions, read by the verbs in turn, errors as their repr; those passed are None.

    Args:
        rounds: of "next", "chunk" or "advance", and how many.
        stream: to read.
    """
    found: list[Any] = []
    for verb, n in itertools.cycle(rounds):
        try:
            if verb == "next":
                found.append(stream.next())
            elif verb == "chunk":
                chunk = stream.next_chunk(n, 1 << 20)
                if not chunk:
                    return found
                found += chunk
            else:
                passed = stream.advance(n)
                found += [None] * passed
                if passed < n:
                    return found
        except StopIteration:
            return found
        except Exception as error:
            found.append(repr(error))
    raise AssertionError("there is no verb to read by")


def check_verbs(make: Callable[[], Dataset], *, mixes: int = 12, **context: Any) -> list[Any]:
    """Asserts that all mixes of the verbs, and a decoded tree, read what `next` reads.

    Args:
        make: builds the dataset anew; it must end.
        mixes: how many random mixes to read.

    Returns:
        The tape.
    """
    expected = tape(make(), **context)
    decoded = Dataset(decode_tree(encode_tree(make().node)))
    assert tape(decoded, **context) == expected
    for seed in range(mixes):
        stream = opened(make(), **context)
        try:
            _read_mixed(stream, expected, random.Random(seed))
        finally:
            stream.close()
    for n in (0, 1, len(expected) // 2, len(expected), len(expected) + 3):
        stream = opened(make(), **context)
        try:
            assert stream.advance(n) == min(n, len(expected))
            assert positions(stream) == expected[n:]
        finally:
            stream.close()
    return expected


def _read_mixed(stream: Stream, expected: list[Any], rng: random.Random) -> None:
    verbs = rng.sample(["next", "chunk", "advance"], rng.randint(1, 3))
    at = 0
    while at < len(expected):
        verb = rng.choice(verbs)
        if verb == "next":
            assert positions(stream, 1) == expected[at : at + 1]
            at += 1
        elif verb == "advance":
            count = rng.choice([0, 1, 2, 5, 17])
            assert stream.advance(count) == min(count, len(expected) - at)
            at += count
        else:
            count = rng.choice([1, 2, 3, 50])
            found = chunk_of(stream, count, rng.choice([1, 100, 1 << 20]))
            assert 0 < len(found) <= count
            assert found == expected[at : at + len(found)]
            at += len(found)
    for _ in range(2):
        assert positions(stream, 1) == []
        assert stream.next_chunk(3, 1 << 20) == []
        assert stream.advance(2) == 0


def chunk_of(stream: Stream, count: int, max_bytes: int = 1 << 20) -> list[Any]:
    """What a `next_chunk` gives, or the error it raises."""
    try:
        return [plain(element) for element in stream.next_chunk(count, max_bytes)]
    except Exception as error:
        return [failed(error)]
