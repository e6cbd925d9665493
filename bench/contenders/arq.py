"""arq: a sorted set of due times, polled; one key per job, guarded by WATCH.

It pins an older redis-py than all others and therefore has an environment of its own.
"""

from bench.contenders.python_peer import PythonPeer


class Arq(PythonPeer):
    name = "arq"
    group = "arq"
    package = "arq"
    program = "arq_peer"
    settings = (
        "100 jobs at once, no results kept, uvloop; while draining poll_delay 0.01 s and queue_read_limit "
        "2000 (default 0.5 s and 500), for lateness the default poll"
    )
    jobs = 5_000
    enqueue_jobs = 12_000
    most_parked = 10_000
