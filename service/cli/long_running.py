"""Start and end of the long-running commands work, watch and run: settings, logs, event loop, error messages."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from service import logs, python_gc
from service.cli.deletion_policy import Policies, override_policies
from service.cli.session import CommandError, InvalidUsage, explain_redis_error, load_settings
from service.engine.installation import Installation
from service.kubernetes import preload
from service.settings import Settings, SettingsError
from service.web import WebServerFailed

log = structlog.get_logger(__name__)


def run_until_stopped(
    config: Path | None, policies: Policies, work: Callable[[Settings], Coroutine[Any, Any, None]]
) -> None:
    settings = override_policies(load_settings(config), policies)
    logs.configure(settings.log)
    if settings.clusters:
        preload()
    python_gc.collect_rarely()
    try:
        run_loop(work(settings))
    except CommandError:
        raise
    except Exception as error:
        said = [_as_command_error(one, settings) for one in _leaf_errors(error)]
        # Watcher and worker may fail for the same reason at once; one message is enough.
        if None in said or said[0] is None:
            log.exception("a loop failed, the process ends")
            raise SystemExit(1) from None
        raise said[0] from None


def _as_command_error(error: BaseException, settings: Settings) -> CommandError | None:
    """None for an unexpected error."""
    match error:
        case CommandError():
            return error
        case SettingsError():
            return InvalidUsage(str(error))
        case WebServerFailed():
            return CommandError(str(error))
    words = explain_redis_error(error, settings.redis)
    return None if words is None else CommandError(words)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop if it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop

        factory = new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


def redis_outage(installation: Installation) -> tuple[float, str] | None:
    """Since when (monotonic seconds), and why, the process's own calls to Redis fail."""
    caller = installation.caller
    return None if caller.unavailable_since is None else (caller.unavailable_since, caller.unavailable_reason)


def _leaf_errors(error: BaseException) -> list[BaseException]:
    """The errors inside exception groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaf_errors(inner)]
