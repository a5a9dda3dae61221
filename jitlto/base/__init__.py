"""What all steps share: errors, settings, files, names, text."""
