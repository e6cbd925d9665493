"""Sweeps: periodic search for orphaned resources that no event announced. Begin with `sweeper`, the loop, and
`sweep_pass`, one pass: candidates are listed first, living owners last. What remains becomes an event like any other,
with background priority. What is listed, and how, is said by a collector's `OrphanFinder` (`workers.handlers.orphans`).
"""
