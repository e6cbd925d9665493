"""Side-by-side figures: Knell, other job systems and the raw limit of the client on one and the same server.

Run with `python -m bench`; each row of the report has a file of its own in `rows`, each system one in
`contenders`.
"""
