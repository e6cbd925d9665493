"""Control side of Knell: watches objects, evaluates policy, and keeps the durable record of deletions in Redis.

Begin with `cli/watch.py` and `watching/watcher.py` for what runs, and with `engine/shard.py` for what is stored. It
never imports `workers/`, except in the few commands that start both sides in one process.
"""
