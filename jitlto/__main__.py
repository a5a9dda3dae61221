"""``python -m jitlto``: the same command line as ``jitlto``."""

from jitlto.cli import main

main()
