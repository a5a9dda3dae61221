"""Build hooks, which hatchling and setuptools call when a wheel is made; nothing else in jitlto imports either."""
