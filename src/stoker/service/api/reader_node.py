"""The node of a reader, and what it needs of the registered dataset."""

import uuid

from stoker.dataset.drawn_seeds import DrawnSeed, DrawnSeeds
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.pickling.record_classes import RecordClasses
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Node
from stoker.dataset.tree.structure import structure_of
from stoker.dataset.tree.walk import functions_of
from stoker.elements.codec.records import describe, record_classes_of
from stoker.elements.spec import Spec
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.api.source import Distributed
from stoker.service.control import rpc


def registered(options: ReadOptions, dataset_id: str) -> m.DatasetReply:
    """Return a registered dataset without its tree."""
    # The tree may be a gigabyte, and is not needed here.
    question = m.GetDataset(dataset_id, with_tree=False)
    address, timeout = options.dispatcher_address, options.connect_timeout
    reply = rpc.call_patiently(address, question, timeout)
    assert isinstance(reply, m.DatasetReply)
    return reply


def record_classes(spec: Spec, root: Node | None = None) -> RecordClasses:
    """Return the record classes of an element_spec, and classes that functions refer to."""
    known = [cls for cls in record_classes_of(spec) if describe(cls) is not None]
    # A peer never names a class: elements are rebuilt from classes of this program only.
    # (docs/decisions/068)
    declared = {describe(cls): cls for cls in reversed(known)}  # the outermost counts
    functions = [] if root is None else functions_of(root)
    used = [cls for _, pickled in functions for cls in pickled.code().record_classes]
    return RecordClasses([*declared.values(), *(c for c in used if describe(c) not in declared)])


def reader_node(
    options: ReadOptions,
    spec: Spec,
    classes: RecordClasses,
    site: str,
    *,
    size: int | None,
    length: int = UNKNOWN_CARDINALITY,
    dataset_id: str = "",
    registration: m.RegisterDataset | None = None,
    draws: m.Draws | None = None,
) -> Distributed:
    """Return the node that reads a dataset: one to register, or that of `dataset_id`."""
    # A random name, so that forked and unpickled copies of the dataset share the job.
    job = options.job_name or f"anonymous:{uuid.uuid4().hex}"
    if dataset_id and options.job_name is not None:
        # Jobs of different ids may have one name.
        job = f"{dataset_id}/{job}"
    hello = m.ClientHello(
        m.PROTOCOL_MIN,
        m.PROTOCOL_MAX,
        dataset_id,
        job,
        options.job_parameters,
        named=options.job_name is not None,
        registration=registration,
        consumer_index=options.consumer_index,
        draws=draws,
    )
    return Distributed(
        read_options=Pickled.of(options),
        hello=Pickled.of(hello),
        spec=Pickled.of(spec),
        classes=Pickled.of(classes),
        structure=b"" if registration is None else structure_of(registration.tree),
        processing_mode=options.processing_mode.name,
        length=length,
        size=UNKNOWN_CARDINALITY if size is None else size,
        asks_size=size is None,
        site=site,
    )


def initial_draws(options: ReadOptions, registered: DrawnSeeds) -> m.Draws:
    """Return the salts with which a reader begins; the seed is that of its dataset."""
    return m.Draws(0, salts=[] if _ties(options, registered) else registered.salts)


def reader_seed(options: ReadOptions, registered: DrawnSeeds) -> DrawnSeed | None:
    """Return the seed of all processes that read together; ``None``: that of the dataset.

    Args:
        options: of the reader.
        registered: the seeds that were registered; of a global seed, which all processes have.
    """
    if _ties(options, registered):
        return DrawnSeed(0)
    return None if registered.seed is None else DrawnSeed(registered.seed, from_global=True)


# Processes that draw their own seeds would read different orders, and could not agree on one.
def _ties(options: ReadOptions, registered: DrawnSeeds) -> bool:
    return options.ties_processes and registered.seed is None
