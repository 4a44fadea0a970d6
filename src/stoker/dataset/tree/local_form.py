"""The tree that computes here what a tree reads from deterministic epochs of a service."""

from typing import NamedTuple

from stoker.dataset.tree.node import Node, RemoteEpoch, number


class LocalForm(NamedTuple):
    """A tree without services, to which numbers, salts and states of the original tree refer.

    Attributes:
        root: the tree; the original one if no node has a `Node.remote_epoch`.
        numbers: number of each node of the original tree in this tree.
        epochs: the epochs that nodes of the original tree read.
    """

    root: Node
    numbers: dict[Node, int]
    epochs: dict[Node, RemoteEpoch]

    @property
    def consumers(self) -> int:
        """The number of processes that divide the epoch."""
        return max((epoch.consumers for epoch in self.epochs.values()), default=1)


# Draws and states depend on the numbers of nodes. With these numbers, `distribute` changes neither
# of them. (docs/decisions/105)
def local_form(root: Node) -> LocalForm:
    """Return the local form of a tree."""
    numbers = number(root)
    found = ((node, node.remote_epoch()) for node in numbers)
    epochs = {node: epoch for node, epoch in found if epoch is not None}
    if not epochs:
        return LocalForm(root, numbers, {})
    done: dict[Node, Node] = {}
    for node in numbers:
        own = [done[child] for child in node.inputs]
        done[node] = epochs[node].tree if node in epochs else node.with_inputs(own)
    local = number(done[root])
    return LocalForm(done[root], {node: local[done[node]] for node in numbers}, epochs)


def nodes_above_epoch(root: Node) -> tuple[list[Node], Node]:
    """Return the nodes above a remote epoch, from the root on, and the node that reads it.

    The second is another node, which prevents it, if elements of the root do not follow from
    positions of the epoch. A `take` or `skip` prevents it because it counts elements of a consumer.
    """
    above = []
    node = root
    while node.remote_epoch() is None:
        if node.input_positions() is None or node.inputs_per_element() is None:
            break
        above.append(node)
        [node] = node.inputs
    return above, node
