"""What is declared, stored and planned, as values."""
