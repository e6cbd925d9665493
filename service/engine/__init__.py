"""The engine: queue, leases, budgets and records in Redis (or Valkey).

Begin with `installation.py`, which connects to one installation, and `shard.py`, which has one method per move. A move
is one atomic Lua script in `scripts/`; time is the server's. `calls.py` sends scripts and commands until they are
answered. Plain hashes that need no script have a module each (`inventory.py`, `orphans.py`, `kept_store.py` ...),
`views/` holds the read-only queries of the command line, and `reshard/` changes the number of shards.
"""
