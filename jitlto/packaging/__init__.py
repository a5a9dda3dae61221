"""Families in packages: build hooks, packs, scaffold, import from CMake."""
