"""Numbers with their nouns, in texts for users."""


def plural(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun.

    Args:
        number: the number.
        one: the words after 1, such as "task" or "task ends".
        several: the words after numbers besides 1; by default with an "s".
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
