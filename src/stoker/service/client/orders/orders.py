"""The order of each kind of read."""

from stoker.service.client.orders.order import ArrivalOrder, Order
from stoker.service.client.orders.round_order import RoundOrder
from stoker.service.messages import JobParameters


def new_order(parameters: JobParameters) -> Order:
    """Return the order in which a client of a job with these parameters reads."""
    return ArrivalOrder() if parameters.num_consumers is None else RoundOrder()
