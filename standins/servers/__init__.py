"""Real servers on local ports, for the demo and the tests: one server, a Cluster, a Sentinel set-up.
They are children of the calling process and end with it."""

from standins.servers.binaries import NoServerError, embedded_binary, redis_binary
from standins.servers.cluster import Cluster
from standins.servers.papers import Papers
from standins.servers.sentinel import Sentinels
from standins.servers.single import Server

__all__ = ["Cluster", "NoServerError", "Papers", "Sentinels", "Server", "embedded_binary", "redis_binary"]
