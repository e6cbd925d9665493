"""Side-by-side figures: Knell, other systems and the raw limit of the client on the same servers.

Run with `python -m bench`; each row of the report has a file of its own in `rows`, each system one in
`contenders`.
"""
