"""The version of jitlto, in its own module, so that it can be imported without the rest of the package."""

__version__ = "0.1.0"
