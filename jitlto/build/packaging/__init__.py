"""Families inside Python packages: configuration, prebuilt databases, scaffolding and build hooks."""
