"""Build hooks for hatchling and setuptools; nothing else in jitlto imports either."""
