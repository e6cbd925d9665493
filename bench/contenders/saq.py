"""SAQ: a list of job ids moved by BLMOVE, due times looked at once a second.

More jobs at once than twenty made it slower, so it gets twenty.
"""

from bench.contenders.python_peer import PythonPeer


class Saq(PythonPeer):
    name = "saq"
    package = "saq"
    program = "saq_peer"
    settings = "20 jobs at once (faster than 100), finished jobs not kept, hiredis, uvloop"
    concurrency = 20
    jobs = 5_000
    enqueue_jobs = 20_000
    most_parked = 10_000
