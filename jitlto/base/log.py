"""Messages to the log. Importing logging takes 2 ms, and most processes have nothing to say."""


def log(logger: str, level: str, message: str, *values: object) -> None:
    """Log a message by a method of a logger: ``debug``, ``info``, ``warning``, ``exception``."""
    import logging

    getattr(logging.getLogger(logger), level)(message, *values)


_warned: dict[object, object] = {}


def warn_once(logger: str, subject: object, message: str, *values: object) -> None:
    """Log a warning, unless one about the same subject was logged before, even by another thread."""
    mine = object()
    if _warned.setdefault((logger, subject), mine) is mine:  # atomic, and without a lock that a fork could lose
        log(logger, "warning", message, *values)
