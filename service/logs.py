"""Logging of every command: events with bound context, as JSON in a container, as text on a terminal.
Credentials are masked on the way out, so that no call site has to remember it."""

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TextIO

import msgspec

from service.masking import mask_entry, mask_text
from service.settings import LogSettings
from service.settings.durations import write


@contextmanager
def _as_if_missing(package: str) -> Iterator[None]:
    """Whoever imports the package meanwhile is told that it is not installed; one that is there already stays."""
    if package in sys.modules:
        yield
        return
    # The documented way to say so to an import.
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


# structlog imports rich, and rich pygments, for tracebacks that show locals. Ours never do, so nothing of that would
# ever run, and it is 5 MiB of every process. The commands that draw tables import rich for themselves.
with _as_if_missing("rich"):
    import structlog

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(settings: LogSettings) -> None:
    """Sets up structlog and sends the standard library's records the same way. Called once, at the start."""
    level = _LEVELS[settings.level]
    readable = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        # A traceback becomes text before masking, for an error may hold an address with a password. Locals
        # are never shown, for the same reason.
        structlog.processors.format_exc_info,
        spell_durations,
        mask_credentials,
    ]
    renderer = _console() if readable else _json
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=StderrLogger,
        cache_logger_on_first_use=True,
    )
    _configure_standard_library(level, shared, renderer)


class StderrLogger:
    """Writes whole lines to whatever stderr is at that moment; stdout belongs to tables."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        # One write per line, so that lines of several processes on one terminal do not mix.
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = log = msg


def mask_credentials(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor: nothing under a key that names a secret, and no address with a password, gets past it."""
    for key, value in event.items():
        event[key] = mask_entry(key, value)
    return event


def spell_durations(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor: durations read as they are written in the settings."""
    for key, value in event.items():
        if isinstance(value, timedelta):
            event[key] = write(value)
    return event


def _json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    # The event first: a line is recognised by its beginning.
    ordered = {
        "timestamp": event.pop("timestamp", None),
        "level": event.pop("level", None),
        "event": event.pop("event", ""),
    }
    return msgspec.json.encode({**ordered, **event}, enc_hook=_readable).decode()


def _readable(value: object) -> str:
    return mask_text(repr(value))


def _console() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """The counterpart of StderrLogger for records of libraries."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _configure_standard_library(level: int, shared: list[Any], renderer: Any) -> None:
    handler = _CurrentStderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    for old in [known for known in root.handlers if isinstance(known, _CurrentStderr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Libraries tell at info what only their authors want to know.
    root.setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
