"""Shared stores: what one machine has linked or compiled, for all others. Loaded only where a store is configured."""
