"""The fastest event loop that is installed, for every process of the bench alike.

Apart from everything else: importing this brings no library along that a peer would have to carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def fastest_loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
