"""A declaration becomes sources: family.toml, matrix, templates."""
