"""dramatiq: threads, and one script call per fetch and per acknowledgement.

It takes part twice: as its command line starts it, and with the number of threads at which it was found
fastest.
"""

from bench.contenders.python_peer import PythonPeer


class Dramatiq(PythonPeer):
    name = "dramatiq"
    package = "dramatiq"
    program = "dramatiq_peer"
    settings = "8 threads (its default)"
    concurrency = 8
    jobs = 6_000
    enqueue_jobs = 12_000
    cannot_park = "its workers fetch delayed messages at once and hold them in their own memory"


class DramatiqTuned(Dramatiq):
    name = "dramatiq-32"
    settings = "32 threads (faster than 8 and than 100)"
    concurrency = 32
    jobs = 12_000
