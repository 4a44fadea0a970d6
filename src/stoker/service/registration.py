"""Registration of a dataset with a dispatcher: pickled once, sent only if it is new."""

import hashlib

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.dataset.tree.structure import decode_wire_nodes, source_summary, structure_of
from stoker.dataset.tree.wire_form import encode_tree, functions_of
from stoker.elements.spec import spec_to_wire
from stoker.service import messages as m
from stoker.service import rpc
from stoker.service.versions import versions


def registration_of(dataset: Dataset, compression: str | None) -> m.RegisterDataset:
    """Return the registration of `dataset`; pickles its functions now, at the user's line."""
    tree = encode_tree(dataset.node)
    spec = spec_to_wire(dataset.element_spec)
    options = dataset.options()
    digest = hashlib.blake2b(digest_size=16)
    for part in (tree, msgspec.msgpack.encode((spec, options, compression))):
        digest.update(len(part).to_bytes(8, "little") + part)
    return m.RegisterDataset(
        digest=digest.hexdigest(),
        tree=tree,
        spec=spec,
        options=options,
        size=_cardinality(dataset),
        sources=source_summary(dataset.node),
        runs_python=any(node.pickled for node in decode_wire_nodes(tree)),
        versions=versions(),
        compression=compression,
        structure=structure_of(tree),
        functions=[
            m.Function(site, pickled.digest()) for site, pickled in functions_of(dataset.node)
        ],
    )


def register(dispatcher_address: str, registration: m.RegisterDataset, timeout: float) -> str:
    """Register a dataset and return its id; send the tree only if the dispatcher lacks it."""
    question = msgspec.structs.replace(registration, tree=b"")
    reply = rpc.call_patiently(dispatcher_address, question, timeout)
    assert isinstance(reply, m.DatasetRegistered)
    if not reply.dataset_id:
        reply = rpc.call_patiently(dispatcher_address, registration, timeout)
        assert isinstance(reply, m.DatasetRegistered)
    return reply.dataset_id


def _cardinality(dataset: Dataset) -> int:
    known = dataset.cardinality()
    return known if known in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY
