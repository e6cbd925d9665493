"""Session of one command: shared options, settings, a connection to Redis with short timeouts, and error messages.
An operator waits for the result, so errors that a worker would retry are reported at once, with what to do."""

import asyncio
import getpass
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from redis import exceptions as errors

from service import logs
from service.cli.main import FORM, FORMS, RootOptions
from service.engine.batch_reads import stored_shards
from service.engine.calls import ServerUnavailable
from service.engine.epoch import ShardCountMismatch
from service.engine.installation import Installation
from service.masking import mask_text
from service.settings import RedisSettings, Settings, SettingsError, load

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

PATIENCE: Final = timedelta(seconds=3)
_MAX_TIMEOUT: Final = timedelta(seconds=3)


class CommandError(click.ClickException):
    """Ends the command with exit code 1; the message says what is wrong and what to do."""

    exit_code = 1


class InvalidUsage(CommandError):
    """Invalid arguments or settings: ends the command with exit code 2."""

    exit_code = 2


def config_option(command: C) -> C:
    """Adds `--config` after the subcommand."""
    option = click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="YAML file with settings.")
    return option(command)


def output_option(command: C) -> C:
    """Adds `--output` after the subcommand, without the form `name`; the command gets the value as `form`."""
    return _output_option(FORMS[:-1])(command)


def listing_option(command: C) -> C:
    """Like `output_option`, with the form `name`, for commands that list arguments of other commands."""
    return _output_option(FORMS)(command)


def _output_option(forms: Sequence[str]) -> Callable[[C], C]:
    def choose(context: click.Context, _parameter: click.Parameter, said: str | None) -> str:
        form = said or root_options().output
        if form not in forms:
            raise click.UsageError(f"this command has no output {form!r}, only {', '.join(forms)}")
        context.meta[FORM] = form
        return form

    return click.option(
        "--output", "-o", "form", type=click.Choice(forms), callback=choose, help="How it is shown.  [default: table]"
    )


def root_options() -> RootOptions:
    """Options before the subcommand; defaults if a subcommand is run by itself."""
    found = click.get_current_context().find_root().obj
    return found if isinstance(found, RootOptions) else RootOptions()


def load_settings(config: Path | None = None) -> Settings:
    """Raises InvalidUsage for invalid settings."""
    try:
        return load(config or root_options().config, os.environ)
    except SettingsError as error:
        raise InvalidUsage(str(error)) from None


def operator() -> str:
    """User and host of this command, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}".replace(" ", "_")


def interactive_settings(config: Path | None = None) -> Settings:
    """Settings for a command that an operator waits for: short timeouts, and only errors logged."""
    settings = load_settings(config)
    redis = settings.redis
    shorter = msgspec.structs.replace(
        redis,
        call_timeout=min(redis.call_timeout, _MAX_TIMEOUT),
        connect_timeout=min(redis.connect_timeout, _MAX_TIMEOUT),
    )
    level = settings.log.level if settings.log.level == "debug" else "error"
    logs.configure(msgspec.structs.replace(settings.log, level=level))
    return msgspec.structs.replace(settings, redis=shorter)


def run_with_redis(work: Callable[[Installation], Awaitable[T]], config: Path | None = None) -> T:
    """Runs a command's work with an installation, after checking that its shard count fits the data."""
    settings = interactive_settings(config)
    try:
        return asyncio.run(_run_with_redis(work, settings))
    except Exception as error:
        words = explain_redis_error(error, settings.redis)
        if words is None:
            raise
        raise CommandError(words) from None


async def _run_with_redis(work: Callable[[Installation], Awaitable[T]], settings: Settings) -> T:
    installation = Installation(settings, name="knell-cli", patience=PATIENCE)
    try:
        # Without retries, so that an unreachable server is reported at once.
        await installation.connections.client.execute_command("PING")
        await _check_shards(installation)
        return await work(installation)
    finally:
        await installation.aclose()


async def _check_shards(installation: Installation) -> None:
    stored = await stored_shards(installation)
    if stored.moving_to:
        raise ShardCountMismatch(
            f"the data is being moved to {stored.moving_to} shards, or such a move was interrupted; wait for "
            f"it, or run `knell reshard --to {stored.moving_to}` again with all workers stopped"
        )
    wanted = installation.keys.shards
    if stored.kept and stored.kept != wanted:
        raise ShardCountMismatch(
            f"the data is kept in {stored.kept} shards, but redis.shards says {wanted}; set redis.shards "
            f"(KNELL_REDIS_SHARDS) to {stored.kept}"
        )


def confirm(question: str) -> None:
    """Raises CommandError unless the operator answers yes."""
    try:
        agreed = click.confirm(question)
    except click.Abort:
        raise CommandError("nothing was changed: the question was not answered; --yes answers it beforehand") from None
    if not agreed:
        raise CommandError("nothing was changed")


def explain_redis_error(error: BaseException, redis: RedisSettings) -> str | None:
    """One sentence on what is wrong and what to do; None if the error is not about Redis."""
    if isinstance(error, ServerUnavailable) and error.__cause__ is not None:
        return explain_redis_error(error.__cause__, redis)
    said = mask_text(" ".join(str(error).split())) or type(error).__name__
    where = redis.described()
    match error:
        case BrokenPipeError():
            # The reader of our output has gone; this is not about Redis.
            return None
        case ShardCountMismatch():
            return said
        case errors.AuthenticationError():
            return f"{where} refused the login ({said}); check redis.username and redis.password_file"
        case errors.NoPermissionError():
            return f"the user lacks a permission at {where} ({said}); `knell doctor` lists what is missing"
        case errors.BusyLoadingError():
            return f"{where} is still loading its data; try again in a moment"
        case errors.TimeoutError() | TimeoutError():
            return f"{where} did not answer in time; is the host reachable and the server not hung?"
        case errors.OutOfMemoryError():
            return f"{where} is full and takes no more writes; raise its maxmemory"
        case errors.ReadOnlyError():
            return f"{where} is a replica, which takes no writes; let redis.url name the primary"
        case errors.ConnectionError() | ConnectionError() | errors.RedisClusterException():
            what = "start the server, or set redis.url (KNELL_REDIS_URL) and redis.mode"
            return f"can't reach {where}: {said.rstrip('.')}; {what}"
        case ServerUnavailable():
            return f"{where} stopped answering ({said}); try again in a moment"
        case errors.ResponseError() if "cross" in said.lower() or said.startswith("MOVED"):
            return f"{where} is a Cluster ({said}); set redis.mode (KNELL_REDIS_MODE) to cluster"
        case errors.RedisError():
            return f"{where} refused a call ({said}); `knell doctor` tells more"
        case _:
            return None
