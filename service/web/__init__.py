"""What a long-running process shows to the outside: whether it lives, whether it is ready, and its numbers.

Nothing here changes anything, and nothing here shows a credential.
"""

from service.web.health import Health, Hindrance
from service.web.metrics import Metrics, ProcessCounts
from service.web.server import Surface, SurfaceFailed
from service.web.sources import ClusterNumbers, SourceNumbers, watching_page

__all__ = [
    "ClusterNumbers",
    "Health",
    "Hindrance",
    "Metrics",
    "ProcessCounts",
    "SourceNumbers",
    "Surface",
    "SurfaceFailed",
    "watching_page",
]
