"""What all steps share: errors, settings, files, names, text; and the version of jitlto."""

__version__ = "0.1.0"
