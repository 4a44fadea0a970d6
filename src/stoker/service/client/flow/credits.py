"""The credit of each kind of read."""

from stoker.service.api.read_options import ReadOptions
from stoker.service.client.flow.credit import LimitedCredit, NeededFirst, WindowedCredit


def new_credit(options: ReadOptions, needed_first: NeededFirst, *, singly: bool) -> WindowedCredit:
    """Return the credit of a client with these options; other arguments as of `LimitedCredit`."""
    limit, nbytes = options.max_outstanding_requests, options.buffer_bytes
    # Programs written for tf.data service restart workers and expect an epoch that was hardly read
    # to begin anew. (docs/decisions/019)
    gradual = options.tensorflow_timing
    if limit is None:
        return WindowedCredit(nbytes, gradual=gradual)
    return LimitedCredit(limit, nbytes, needed_first, singly=singly, gradual=gradual)
