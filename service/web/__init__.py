"""HTTP endpoints of the long-running commands: `/healthz`, `/readyz` and `/metrics`.

Begin with server.py, which has the routes. listener.py is the HTTP server with its limits, health.py decides readiness.
Prometheus metrics: metrics.py has those of this process and of Redis, watch_metrics.py those of sources and clusters;
shard_stats.py reads what the shards count. Endpoints only read, and never show a credential.
"""

from service.web.health import Health, Hindrance
from service.web.metrics import Metrics, ProcessCounts
from service.web.server import WebServer, WebServerFailed
from service.web.watch_metrics import ClusterStats, SourceStats, watch_metric_families

__all__ = [
    "ClusterStats",
    "Health",
    "Hindrance",
    "Metrics",
    "ProcessCounts",
    "SourceStats",
    "WebServer",
    "WebServerFailed",
    "watch_metric_families",
]
