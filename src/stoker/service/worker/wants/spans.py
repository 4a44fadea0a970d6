"""Arithmetic of positions of an epoch: ranges with a step of 1 or more."""

from collections.abc import Iterable
from math import gcd

from stoker.errors import InvalidArgumentError
from stoker.wire.frames import Positions

NOTHING = range(0)


def span_of(positions: Positions) -> range:
    """Return the range of ``(first, count, step)``; a single position has the step 1."""
    first, count, step = positions
    return range(first, first + 1) if count == 1 else range(first, first + count * step, step)


def positions_of(spans: Iterable[range]) -> list[Positions]:
    """Return ``(first, count, step)`` of each span, of neighbours together."""
    found: list[Positions] = []
    for span in spans:
        first, count, step = found[-1] if found else (0, 0, 0)
        if found and span[0] == first + count * step and (span.step == step or len(span) == 1):
            found[-1] = first, count + len(span), step
        else:
            found.append((span[0], len(span), span.step))
    return found


def common(one: range, other: range) -> range:
    """Return the positions that are in both spans.

    Example:
        >>> list(common(range(0, 40, 4), range(6, 100, 6)))
        [12, 24, 36]
    """
    if not one or not other or one[-1] < other[0] or other[-1] < one[0]:
        return NOTHING
    divisor = gcd(one.step, other.step)
    distance = other.start - one.start
    if distance % divisor:
        return NOTHING
    # The Chinese remainder theorem: one position of both in each `step` positions.
    modulus = other.step // divisor
    step = one.step * modulus
    steps = distance // divisor * pow(one.step // divisor, -1, modulus) % modulus
    first = one.start + steps * one.step
    low = max(one.start, other.start)
    first += max(0, -((first - low) // step)) * step
    found = range(first, min(one[-1], other[-1]) + 1, step)
    return range(first, first + 1) if len(found) == 1 else found


def without(span: range, removed: range) -> list[range]:
    """Return the positions of a span that are not in another, as spans.

    Raises:
        InvalidArgumentError: if they have different steps, so that the rest is no spans.
    """
    gone = common(span, removed)
    if not gone:
        return [span]
    if len(gone) > 1 and gone.step != span.step:
        raise InvalidArgumentError(
            f"positions {removed} cannot be cancelled in {span}: the steps must be equal"
        )
    first = span.index(gone[0])
    rest = span[:first], span[first + len(gone) :]
    return [part for part in rest if part]


def starting_at(span: range, position: int) -> range:
    """Return the positions of a span that are not before a position."""
    passed = -((span.start - position) // span.step) if position > span.start else 0
    return span[passed:]
