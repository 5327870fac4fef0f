"""Counts with their nouns, for messages."""


def count_of(count: int, noun: str, plural: str = "") -> str:
    """The count and the noun in the right form.

    >>> count_of(1, "run"), count_of(1200, "run"), count_of(0, "process", "processes")
    ('1 run', '1,200 runs', '0 processes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
