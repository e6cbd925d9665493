"""One command's time with the server: settings, an installation with little patience, errors in words.
An operator waits for the answer, so what a worker would wait out is said at once here, with what to do."""

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
from service.cli.main import FORM, FORMS, Choices
from service.engine.attendance import WrongShards
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.engine.views.reading import stored_shards
from service.masking import mask_text
from service.settings import RedisSettings, Settings, SettingsError, load

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

PATIENCE: Final = timedelta(seconds=3)
_LONGEST_WAIT: Final = timedelta(seconds=3)


class Trouble(click.ClickException):
    """One sentence on what is wrong and what to do; the command ends with exit code 1."""

    exit_code = 1


class Misuse(Trouble):
    """What was asked for can't be meant; the command ends with exit code 2."""

    exit_code = 2


def config_option(command: C) -> C:
    """`--config` after the subcommand, too."""
    option = click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="YAML file with settings.")
    return option(command)


def output_option(command: C) -> C:
    """`--output` after the subcommand, too; the command gets its choice as `form`, `table` and `wide` alike."""
    return _output_option(FORMS[:-1])(command)


def listing_option(command: C) -> C:
    """The same for a command that lists what other commands can be given, which has the form `name` as well."""
    return _output_option(FORMS)(command)


def _output_option(forms: Sequence[str]) -> Callable[[C], C]:
    def choose(context: click.Context, _parameter: click.Parameter, said: str | None) -> str:
        form = said or choices().output
        if form not in forms:
            raise click.UsageError(f"this command has no output {form!r}, only {', '.join(forms)}")
        context.meta[FORM] = form
        return form

    return click.option(
        "--output", "-o", "form", type=click.Choice(forms), callback=choose, help="How it is shown.  [default: table]"
    )


def choices() -> Choices:
    """What was chosen before the subcommand; defaults where a subcommand is run by itself."""
    found = click.get_current_context().find_root().obj
    return found if isinstance(found, Choices) else Choices()


def settings_of(config: Path | None = None) -> Settings:
    """The settings of this command. Whatever is wrong with them is said, and the exit code is 2."""
    try:
        return load(config or choices().config, os.environ)
    except SettingsError as error:
        raise Misuse(str(error)) from None


def operator() -> str:
    """Who gives the order, as the audit names him."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}".replace(" ", "_")


def prepared(config: Path | None = None) -> Settings:
    """Settings for a command that an operator waits for: short waits, logs that leave his screen alone."""
    settings = settings_of(config)
    redis = settings.redis
    shorter = msgspec.structs.replace(
        redis,
        call_timeout=min(redis.call_timeout, _LONGEST_WAIT),
        connect_timeout=min(redis.connect_timeout, _LONGEST_WAIT),
    )
    level = settings.log.level if settings.log.level == "debug" else "error"
    logs.configure(msgspec.structs.replace(settings.log, level=level))
    return msgspec.structs.replace(settings, redis=shorter)


def call(work: Callable[[Installation], Awaitable[T]], config: Path | None = None) -> T:
    """Run one command's work with an installation whose shard count fits the data."""
    settings = prepared(config)
    try:
        return asyncio.run(_call(work, settings))
    except Exception as error:
        words = explain(error, settings.redis)
        if words is None:
            raise
        raise Trouble(words) from None


async def _call(work: Callable[[Installation], Awaitable[T]], settings: Settings) -> T:
    installation = Installation(settings, name="knell-cli", patience=PATIENCE)
    try:
        # The first call is made once and without patience: a server that is not there is said at once.
        await installation.connections.client.execute_command("PING")
        await _check_shards(installation)
        return await work(installation)
    finally:
        await installation.aclose()


async def _check_shards(installation: Installation) -> None:
    stored = await stored_shards(installation)
    if stored.moving_to:
        raise WrongShards(
            f"the data is being moved to {stored.moving_to} shards, or such a move was interrupted; wait for "
            f"it, or run `knell reshard --to {stored.moving_to}` again with all workers stopped"
        )
    wanted = installation.keys.shards
    if stored.kept and stored.kept != wanted:
        raise WrongShards(
            f"the data is kept in {stored.kept} shards, but redis.shards says {wanted}; set redis.shards "
            f"(KNELL_REDIS_SHARDS) to {stored.kept}"
        )


def explain(error: BaseException, redis: RedisSettings) -> str | None:
    """What is wrong with the server and what to do, in a sentence; None where it is not about the server."""
    if isinstance(error, ServerAway) and error.__cause__ is not None:
        return explain(error.__cause__, redis)
    said = mask_text(" ".join(str(error).split())) or type(error).__name__
    where = redis.described()
    match error:
        case BrokenPipeError():
            # Whoever read our output has gone; that is not about the server.
            return None
        case WrongShards():
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
        case ServerAway():
            return f"{where} stopped answering ({said}); try again in a moment"
        case errors.ResponseError() if "cross" in said.lower() or said.startswith("MOVED"):
            return f"{where} is a Cluster ({said}); set redis.mode (KNELL_REDIS_MODE) to cluster"
        case errors.RedisError():
            return f"{where} refused a call ({said}); `knell doctor` tells more"
        case _:
            return None
