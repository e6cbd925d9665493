"""How a long-running command begins and ends: settings, logs, an event loop, and a sentence on what stands in its way.
What it does in between is its own; this is the same for all of them."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from service import cycles, logs
from service.cli.overriding import Policies, overridden
from service.cli.session import Misuse, Trouble, explain, settings_of
from service.engine.installation import Installation
from service.kubernetes import preload
from service.settings import Settings, SettingsError
from service.web import SurfaceFailed

log = structlog.get_logger(__name__)


def serve(config: Path | None, policies: Policies, work: Callable[[Settings], Coroutine[Any, Any, None]]) -> None:
    """Run until it is told to stop."""
    settings = overridden(settings_of(config), policies)
    logs.configure(settings.log)
    if settings.clusters:
        preload()
    cycles.look_seldom()
    try:
        run_loop(work(settings))
    except Trouble:
        raise
    except Exception as error:
        said = [_said(one, settings) for one in _innermost(error)]
        # Both sides of a process may stumble over the same thing at once; one sentence is enough.
        if None in said or said[0] is None:
            log.exception("a loop failed, the process ends")
            raise SystemExit(1) from None
        raise said[0] from None


def _said(error: BaseException, settings: Settings) -> Trouble | None:
    """What it is in words; None for what nobody foresaw."""
    match error:
        case Trouble():
            return error
        case SettingsError():
            return Misuse(str(error))
        case SurfaceFailed():
            return Trouble(str(error))
    words = explain(error, settings.redis)
    return None if words is None else Trouble(words)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop

        factory = new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


def away(installation: Installation) -> tuple[float, str] | None:
    """Since when, and why, the process's own calls to the server fail."""
    caller = installation.caller
    return None if caller.away_since is None else (caller.away_since, caller.away_reason)


def _innermost(error: BaseException) -> list[BaseException]:
    """What really happened, where task groups report failures."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _innermost(inner)]
