"""Real servers on local ports, for the demo and the tests: one server, a Cluster, a Sentinel set-up.
They are children of the calling process and end with it."""

from service.local.servers.binaries import NoServerError, embedded_binary, redis_binary
from service.local.servers.cluster import Cluster
from service.local.servers.papers import Papers
from service.local.servers.sentinel import Sentinels
from service.local.servers.single import Server

__all__ = ["Cluster", "NoServerError", "Papers", "Sentinels", "Server", "embedded_binary", "redis_binary"]
