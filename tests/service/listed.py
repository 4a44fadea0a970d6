"""Lists of files, recorded as a dispatcher records what a worker has listed."""

import msgspec

from stoker.service.dispatcher.entities.listed_values import page_digest
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.state import State


def record_listed(state: State, iteration_id: int, source: int, values: list[str]) -> None:
    """Record a list of one page."""
    page = msgspec.msgpack.encode(values)
    digest = page_digest(page)
    if digest not in state.pages:
        r.PageStored(digest, page).apply(state)
    r.PageListed(iteration_id, source, len(values), digest).apply(state)
