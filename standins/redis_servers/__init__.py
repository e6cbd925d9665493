"""Real Redis or Valkey servers on local ports, for the demo and the tests: one server, a Cluster, a Sentinel setup.
Begin with `server.LocalRedis`. They are child processes of the caller and end with it."""

from standins.redis_servers.binaries import NoServerError, embedded_binary, redis_binary
from standins.redis_servers.cluster import LocalRedisCluster
from standins.redis_servers.sentinel import LocalRedisSentinel
from standins.redis_servers.server import LocalRedis
from standins.redis_servers.tls import TlsFiles

__all__ = [
    "LocalRedis",
    "LocalRedisCluster",
    "LocalRedisSentinel",
    "NoServerError",
    "TlsFiles",
    "embedded_binary",
    "redis_binary",
]
