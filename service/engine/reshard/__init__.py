"""Resharding: moves the data of an installation to another number of shards while all workers are stopped.

Begin with `reshard.py`, which runs the steps in crash-safe order. `placement.py` says which shard a key belongs to,
`scan.py` finds what is in the wrong shard, and `units.py` copies it, verifies the copy and removes the original.
"""
