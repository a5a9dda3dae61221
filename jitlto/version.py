"""The version of jitlto, in a module of its own: whoever needs only that need not import the package's front."""

__version__ = "0.1.0"
