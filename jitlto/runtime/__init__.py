"""The run side: from a configuration to a launched kernel. Reads only fragment databases."""
