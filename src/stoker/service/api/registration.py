"""Registration of a dataset with a dispatcher: pickled once, sent only if new."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.dataset.positions.count import count_positions
from stoker.dataset.sharding import file_sources
from stoker.dataset.tree.call_site import warn_at_call_site
from stoker.dataset.tree.node import Node, layout_of, number
from stoker.dataset.tree.structure import decode_wire_nodes, source_summary, structure_of
from stoker.dataset.tree.walk import functions_of
from stoker.dataset.tree.wire_form import encode_tree
from stoker.elements.spec import spec_to_wire
from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.control.receiving import MAX_MESSAGE_BYTES
from stoker.service.process.host import versions

MAX_TREE_BYTES = MAX_MESSAGE_BYTES - (16 << 20)
"""Most bytes of a registered tree; the rest of its message is far smaller than the difference."""

WARN_TREE_BYTES = 10_000_000
"""A larger tree contains data that workers should read from files."""

_ADVICE = "Read it from files inside the function, or build it there with stoker.per_worker"


def registration_of(dataset: Dataset, compression: str | None) -> m.RegisterDataset:
    """Return the registration of `dataset`; pickles its functions now, at the user's line.

    Raises:
        InvalidArgumentError: if a function cannot be pickled, or functions are too large.
    """
    tree = encode_tree(dataset.node)
    _check_size(tree, dataset)
    spec = spec_to_wire(dataset.element_spec)
    options = dataset.options()
    if options.seed_globals:
        _warn_of_serial_calls(tree)
    return m.RegisterDataset(
        digest=_digest(tree, spec, options, compression),
        tree=tree,
        spec=spec,
        options=options,
        size=dataset.cardinality(),
        sources=source_summary(dataset.node),
        file_sources=file_sources(dataset.node),
        runs_python=any(node.pickled for node in decode_wire_nodes(tree)),
        versions=versions(),
        compression=compression,
        structure=structure_of(tree),
        functions=[
            m.Function(site, pickled.code().digest) for site, pickled in functions_of(dataset.node)
        ],
        seeds=dataset._seeds_of_job(),
        positions=count_positions(dataset.node),
    )


def with_options(registration: m.RegisterDataset, options: Options) -> m.RegisterDataset:
    """Return the registration of the dataset with new options."""
    if options.seed_globals and not registration.options.seed_globals:
        _warn_of_serial_calls(registration.tree)
    digest = _digest(registration.tree, registration.spec, options, registration.compression)
    return msgspec.structs.replace(registration, options=options, digest=digest)


def _digest(tree: bytes, spec: Any, options: Options, compression: str | None) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (tree, msgspec.msgpack.encode((spec, options, compression))):
        # With the length of each part, no two lists of parts give one stream of bytes.
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _check_size(tree: bytes, dataset: Dataset) -> None:
    if len(tree) > MAX_TREE_BYTES:
        raise InvalidArgumentError(
            f"the dataset has {len(tree) / 1e6:,.0f} MB of data in it, more than the "
            f"{MAX_TREE_BYTES / 1e6:,.0f} MB that a dispatcher accepts: "
            f"{large_captures(dataset.node)}. {_ADVICE}"
        )
    # Each worker process keeps the tree as long as the job runs, and each new worker fetches it.
    if len(tree) > WARN_TREE_BYTES:
        warn_at_call_site(
            f"the dataset has {len(tree) / 1e6:,.0f} MB of data in it, which the dispatcher and "
            f"every worker get and keep: {large_captures(dataset.node)}. {_ADVICE}"
        )


def _warn_of_serial_calls(tree: bytes) -> None:
    """Warn if `Options.seed_globals` takes away the parallel calls of a node."""
    for node in decode_wire_nodes(tree):
        if msgspec.msgpack.decode(node.fields).get("num_parallel_calls", 1) not in (None, 1):
            warn_at_call_site(
                f"with `seed_globals`, each worker process makes the calls of `{node.kind}` "
                f"({node.site}) one at a time, not in parallel: run more worker processes, or "
                "draw with stoker.random.generator() and give Options(seed_globals=False)"
            )
            return


def register(dispatcher_address: str, registration: m.RegisterDataset, timeout: float) -> str:
    """Register a dataset and return its id; send the tree only if new to the dispatcher."""
    # First without the tree: a restarted trainer, or the second of many, sends a digest only.
    question = msgspec.structs.replace(registration, tree=b"")
    reply = rpc.call_patiently(dispatcher_address, question, timeout)
    assert isinstance(reply, m.DatasetRegistered)
    if not reply.dataset_id:
        reply = rpc.call_patiently(dispatcher_address, registration, timeout)
        assert isinstance(reply, m.DatasetRegistered)
    return reply.dataset_id


_LEAST_BYTES = 1_000_000
_MOST_NAMES = 5


def large_captures(root: Node) -> str:
    """Return the largest variables and elements that are pickled with a tree, as a list."""
    found = sorted(_captures(root), reverse=True)
    names = [f"{what}, {size / 1e6:,.0f} MB" for size, what in found[:_MOST_NAMES]]
    if len(found) > _MOST_NAMES:
        names.append(f"{len(found) - _MOST_NAMES} more")
    return "; ".join(names)


def _captures(root: Node) -> Iterator[tuple[int, str]]:
    for node in number(root):
        for field in layout_of(type(node)).pickled:
            pickled = getattr(node, field)
            if pickled is None or len(pickled.blob) < _LEAST_BYTES:
                continue
            variables = pickled.large_references(_LEAST_BYTES)
            for variable, function, size in variables:
                yield size, f"`{variable}`, used by `{function}` of `{node.kind}` ({node.site})"
            if not variables:
                yield len(pickled.blob), f"`{field}` of `{node.kind}` ({node.site})"
