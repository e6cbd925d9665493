"""What a long-running process shows to the outside: whether it lives, whether it is ready, and its numbers.

Nothing here changes anything, and nothing here shows a credential.
"""

from service.surface.health import Health
from service.surface.metrics import Metrics, ProcessCounts
from service.surface.server import Surface, SurfaceFailed

__all__ = ["Health", "Metrics", "ProcessCounts", "Surface", "SurfaceFailed"]
