"""The loops of a worker process, one file per loop, all under one root task group.

A loop that fails stops the process, and what it held is given back by its lease.
"""
