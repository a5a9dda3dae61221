"""Examples that can be used: small packages on top of shipped families, as a downstream package would be written."""
