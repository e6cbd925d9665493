"""The systems that are measured, one file each.

A contender knows how to start its own processes; it knows nothing of rows, rounds or goals.
"""
