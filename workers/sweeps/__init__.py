"""Sweeps: what no event told. Candidates are listed first, signs of life last, and what is found goes the same way as
every other deletion, behind all that somebody waits for."""
