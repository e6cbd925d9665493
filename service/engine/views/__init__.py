"""Read-only queries of the engine's data, for the command line and reports.

Nothing here changes a key, and every read is bounded: long data is read in pages. Begin with `overview.py`, which has
the totals and lanes of `knell status`; `deletions.py` and `jobs.py` have the records themselves, the others answer one
command each.
"""
