"""`knell doctor`: checks Redis, the clusters, AWS and Azure, and shows the results, the worst first.
Each result says how to fix what it found. What a server does not disclose is unknown, not wrong."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import click
from redis.exceptions import RedisError
from rich.padding import Padding
from rich.text import Text

from service.cli import output, session
from service.cli.doctor.redis_checks import check_redis
from service.contract.checks import CheckResult
from service.engine.calls import ServerUnavailable
from service.engine.installation import Installation
from service.engine.lease_counters import LeaseCounterStore, RestoreRecord
from service.settings import RedisSettings, Settings
from service.sources.registry import source_named

_STYLES: Final = {"fine": "green", "warning": "yellow", "wrong": "bold red", "unknown": "cyan"}
_WORDS: Final = {"unknown": "can't tell"}
_WORST_FIRST: Final = ("wrong", "warning", "unknown", "fine")


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also list what is fine, one by one.")
@session.output_option
@session.config_option
def doctor(form: str, config: Path | None, *, everything: bool) -> None:
    """Check Redis, the clusters, AWS and Azure, and say what is missing and how to mend it.

    On AWS it asks STS who the credentials are, compares that with aws.account, and makes reads of every service that is
    used; on Azure it reads in every node resource group. A permission that is missing is named. Nothing is changed.

    What is wrong stands first, what is fine in one line. The exit code is 1 if anything is wrong; warnings and what
    can't be told leave it at 0.
    """
    settings = session.interactive_settings(config)
    results = sorted(asyncio.run(_run_checks(settings)), key=lambda one: _WORST_FIRST.index(one.state))
    wrong = sum(result.state == "wrong" for result in results)
    if form == "json":
        output.show_json({"server": settings.redis.described(), "sound": not wrong, "findings": results})
    else:
        _show(settings.redis, results, everything=everything)
    if wrong:
        click.get_current_context().exit(1)


def _show(redis: RedisSettings, results: Sequence[CheckResult], *, everything: bool) -> None:
    """A paragraph for each result: the sentences are too long for the cells of a table."""
    fine = [result for result in results if result.state == "fine"]
    listed = [result for result in results if everything or result.state != "fine"]
    for result in listed:
        where = f" ({result.node})" if result.node else ""
        words = Text(_WORDS.get(result.state, result.state), style=_STYLES[result.state])
        output.show([Text.assemble(words, output.note(f": {result.check}{where}: {result.what}"))])
        if result.mend:
            output.show([Padding(output.note(f"to mend it: {result.mend}"), (0, 0, 0, 4), expand=False)])
    counts = Counter(result.state for result in results)
    said = ", ".join(f"{counts[state]} {_WORDS.get(state, state)}" for state in _WORST_FIRST if counts[state])
    output.show([output.note(f"{redis.described()}: {said} of {len(results)} checks", "bold")])
    if fine and not everything:
        names = ", ".join(dict.fromkeys(result.check for result in fine))
        output.show([output.note(f"fine: {names} (--all lists them)", _STYLES["fine"])])


async def _run_checks(settings: Settings) -> list[CheckResult]:
    installation = Installation(settings, name="knell-doctor", patience=session.PATIENCE)
    try:
        results = [result async for result in check_redis(installation)]
        if settings.clusters:
            results += [result async for result in _check_clusters(installation)]
        if any(source_named(source.collector).components for source in settings.sources.values()):
            results += [result async for result in _check_collectors(installation)]
        return results
    finally:
        await installation.aclose()


async def _check_clusters(installation: Installation) -> AsyncIterator[CheckResult]:
    """Runs also while Redis can't be reached: then the checks that need it are left out."""
    # Imported only here: without clusters the Kubernetes client is not loaded.
    from service.cli.doctor.cluster_checks import check_clusters, check_enabled_times
    from service.cli.doctor.protection_checks import check_protection
    from service.watching.cluster_identity import ClusterIdentities

    identities = ClusterIdentities(installation.settings, installation)
    known: dict[str, str] | None = None
    restored: dict[str, RestoreRecord] = {}
    with contextlib.suppress(RedisError, OSError, ServerUnavailable):
        await installation.connections.client.execute_command("PING")
        restored = await LeaseCounterStore(installation).restored_clusters()
        known = await identities.remembered()
    sound = set[str]()
    async for result in check_clusters(installation.settings, identities, known, restored):
        if result.check == "identity" and result.state != "wrong":
            sound.add(result.node.removeprefix("cluster "))
        yield result
    async for result in check_protection(installation.settings, sound):
        yield result
    if known is not None:
        for result in await check_enabled_times(installation):
            yield result


async def _check_collectors(installation: Installation) -> AsyncIterator[CheckResult]:
    """The checks that collectors bring, of the clouds that their sources need. No budget is drawn on."""
    # Imported only here, as above.
    from service.cli.cluster_clients import connect_clusters
    from workers.app import open_app

    settings = installation.settings
    async with (
        connect_clusters(settings) as clusters,
        open_app(settings, clusters, installation, counted=False) as app,
    ):
        async for result in app.run_checks():
            yield result
