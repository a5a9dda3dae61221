"""Build hooks called by hatchling and setuptools; nothing else in jitlto imports either."""
