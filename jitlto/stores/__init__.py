"""Shared stores."""
