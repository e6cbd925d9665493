"""taskiq on its Redis stream broker: XREADGROUP of a hundred, one XACK per job.

Due times are the business of a separate scheduler process there, so it takes no part in the rows about them.
"""

from bench.contenders.python_peer import PythonPeer


class Taskiq(PythonPeer):
    name = "taskiq"
    package = "taskiq"
    program = "taskiq_peer"
    settings = "RedisStreamBroker, 100 tasks at once, no result backend, parameters not validated, uvloop"
    jobs = 8_000
    enqueue_jobs = 8_000
    cannot_schedule = "due times need a separate scheduler process"
