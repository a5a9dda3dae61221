"""The command ``jitlto``, and ``python -m jitlto``: the command line, and how a signal ends it while it is imported.

Imports next to nothing, since a signal before :func:`main` ends the process in Python's way.
"""

import os


def main() -> None:
    """Run the command line."""
    try:
        import signal  # which imports a few others

        default = (signal.SIG_DFL, signal.default_int_handler)
        early = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) in default]
        for number in early:
            signal.signal(number, lambda n, _: _end(n, signal.Signals(n).name))
    except KeyboardInterrupt:
        _end(2, "SIGINT")
    from jitlto import cli  # imported late: takes 0.1 s, in which an interrupt would be a traceback, or be lost

    cli.main(early)


def _end(number: int, name: str) -> None:
    """Exit at once: nothing is to be tidied up yet."""
    try:
        os.write(2, f"ended by {name}\n".encode())
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    main()
