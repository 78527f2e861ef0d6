"""Write and read the formats of other programs."""
