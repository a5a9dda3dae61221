"""The command ``jitlto``, and ``python -m jitlto``: the command line, and how a signal ends it while it is imported.

Imports next to nothing, since a signal before :func:`main` ends the process in Python's way.
"""

import os


def main() -> None:
    """Run the command line."""
    try:
        import signal  # which imports a few others

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, end_at_once)
    except KeyboardInterrupt:
        end_at_once(2)
    from jitlto import cli  # imported late: takes 0.1 s, in which an interrupt would be a traceback, or be lost

    cli.main()


def end_at_once(number: int, *_: object) -> None:
    """Exit by a signal: until the command line knows better (``jitlto.cli.ending``), nothing is to be tidied up."""
    name = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}[number]
    try:
        os.write(2, f"ended by {name}\n".encode())
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    main()
