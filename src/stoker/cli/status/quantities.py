"""Numbers as people read them: rates, sizes and durations."""

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def count(number: float) -> str:
    """Return a number with separators; a fraction only below 10.

    Example:
        >>> count(1234567), count(12.34), count(0.25), count(0)
        ('1,234,567', '12', '0.2', '0')
    """
    if number and number < 10 and number != round(number):
        return f"{number:.1f}"
    return f"{round(number):,}"


def size(number: float) -> str:
    """Return bytes in a unit of powers of 1000.

    Example:
        >>> size(0), size(1536), size(2_500_000), size(123e9)
        ('0 B', '1.5 kB', '2.5 MB', '123 GB')
    """
    unit = 0
    # From 999.5 on a number is rounded to 1000, which the next unit writes as 1.0.
    while number >= 999.5 and unit < len(_SIZES) - 1:
        number /= 1000
        unit += 1
    # From 9.95 on a number with one digit would be rounded to 10.0.
    digits = 1 if unit and number < 9.95 else 0
    return f"{number:.{digits}f} {_SIZES[unit]}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    Example:
        >>> duration(7), duration(100), duration(7500), duration(200_000)
        ('7s', '1m40s', '2h05m', '2d07h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
