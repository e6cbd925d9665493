"""streaQ: a stream for what is due, a sorted set for what is not, moved over every half second.

More tasks at once than its default of sixteen made it slower, so it keeps the default.
"""

from collections.abc import Mapping

from bench.contenders.python_peer import PythonPeer


class Streaq(PythonPeer):
    name = "streaq"
    package = "streaq"
    program = "streaq_peer"
    settings = (
        "enqueue_many, 16 tasks at once (its default, faster than 100), silent, no results kept, "
        "COREDIS_OPTIMIZED, uvloop"
    )
    concurrency = 16
    jobs = 4_000
    enqueue_jobs = 25_000
    most_parked = 10_000

    def environment(self) -> Mapping[str, str]:
        return {"COREDIS_OPTIMIZED": "true"}
