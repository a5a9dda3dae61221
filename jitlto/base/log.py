"""Messages to the log. Importing logging takes 2 ms, and most processes have nothing to say."""


def log(logger: str, level: str, message: str, *values: object) -> None:
    """Log a message by a method of a logger: ``debug``, ``info``, ``warning``, ``exception``."""
    import logging

    getattr(logging.getLogger(logger), level)(message, *values)


class WarnOnce:
    """Logs a warning once for each subject, even if several threads log it.

    Args:
        logger: The logger's name.
    """

    def __init__(self, logger: str) -> None:
        self._logger = logger
        self._warned: dict[object, object] = {}

    def __call__(self, subject: object, message: str, *values: object) -> None:
        """Log a warning, unless one about the same subject was logged before."""
        mine = object()
        if self._warned.setdefault(subject, mine) is mine:  # atomic, and without a lock that a fork could lose
            log(self._logger, "warning", message, *values)
