"""Starts of dispatchers, and the ids that they give."""

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import JournalHistory
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State

handlers = Handlers()


KEPT_BOOTS = 100
"""Latest starts of dispatchers that are known; positions of earlier ones are accepted."""


@handlers.add
def _add_history(state: State, history: JournalHistory) -> None:
    state.history = history


@handlers.check
def _check_booted(state: State, record: r.Booted) -> bool:
    same = state.history.journal_id in ("", record.journal_id)
    return (
        same
        and bool(record.journal_id)
        and state.history.ids_end <= record.first_id < record.ids_end
    )


@handlers.apply
def _apply_booted(state: State, record: r.Booted) -> None:
    history, boots = state.history, state.history.boots
    history.journal_id, history.ids_end = record.journal_id, record.ids_end
    history.position_key = record.position_key or history.position_key
    if record.boot:  # an earlier version of stoker has none
        boots[record.boot] = history.position
    if len(boots) > KEPT_BOOTS:
        del boots[next(iter(boots))]


@handlers.check
def _check_ids_reserved(state: State, record: r.IdsReserved) -> bool:
    return record.ids_end > state.history.ids_end


@handlers.apply
def _apply_ids_reserved(state: State, record: r.IdsReserved) -> None:
    state.history.ids_end = record.ids_end
