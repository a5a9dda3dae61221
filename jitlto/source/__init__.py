"""Source mode: families loaded from their sources, compiled as far as plans ask for them."""
