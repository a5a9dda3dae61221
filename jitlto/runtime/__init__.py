"""The run side: from a configuration to a launched kernel. Reads nothing but fragment databases."""
