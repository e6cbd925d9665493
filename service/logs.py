"""Logging of every command: events with bound context, as JSON in a container and as text on a terminal.
A processor masks credentials in every event."""

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TextIO

import msgspec

from service.durations import format_duration
from service.masking import mask_entry, mask_text
from service.settings import LogSettings


@contextmanager
def _import_blocked(package: str) -> Iterator[None]:
    """Makes imports of the package fail meanwhile, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    # The documented way to block an import.
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


# structlog imports rich, and rich imports pygments, for tracebacks with locals. We never use those, and they take 5 MiB
# in every process. The commands that show tables import rich themselves.
with _import_blocked("rich"):
    import structlog

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(settings: LogSettings) -> None:
    """Sets up structlog, and standard library logging with the same processors. Called once at the start."""
    level = _LEVELS[settings.level]
    readable = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        # Tracebacks are formatted before masking, because an error may contain a URL with a password. Locals are never
        # shown, for the same reason.
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
    """Writes whole lines to the current stderr; stdout is for tables."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        # One write per line, so that the lines of several processes do not mix.
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = log = msg


def mask_credentials(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor that masks values of keys that name a secret, and credentials in texts."""
    for key, value in event.items():
        event[key] = mask_entry(key, value)
    return event


def spell_durations(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor that formats durations as in the settings."""
    for key, value in event.items():
        if isinstance(value, timedelta):
            event[key] = format_duration(value)
    return event


def _json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    # Fixed order at the beginning, so that lines are easy to scan.
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
    """The counterpart of StderrLogger for standard library logging."""

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
    # The info messages of libraries are not useful to operators.
    root.setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
