"""Loops of a worker process, all in one root task group, and the parts that they share.

Begin with `worker`, which starts them. `planner_loop` turns events into jobs; `attempt_loop` takes jobs and calls their
handlers; `retry_policy` decides what happens after a verdict, backoff included. A loop that fails stops the process;
its leases expire and another worker takes over the jobs.
"""
