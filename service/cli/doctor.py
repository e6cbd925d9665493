"""`knell doctor`: are Redis, the clusters, AWS and Azure as they are needed, and which permission is missing?
Whatever it finds comes with how to mend it, the worst first. What a server keeps to itself is unknown, not wrong."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from rich.padding import Padding
from rich.text import Text

from service.cli import output, session
from service.cli.checks import (
    Finding,
    NodeFacts,
    check_clock,
    check_memory,
    check_mode,
    check_permissions,
    check_persistence,
    check_role,
    check_shards,
    check_version,
)
from service.cli.permissions import lacking
from service.contract.aws import CAPA
from service.engine.calls import ServerAway
from service.engine.connection import is_away
from service.engine.engine import Shard
from service.engine.installation import Installation
from service.engine.views.reading import node_options, stored_shards
from service.engine.witnesses import Restored, Witnesses
from service.settings import RedisSettings, Settings

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
    settings = session.prepared(config)
    findings = sorted(asyncio.run(_gather(settings)), key=lambda one: _WORST_FIRST.index(one.state))
    wrong = sum(finding.state == "wrong" for finding in findings)
    if form == "json":
        output.show_json({"server": settings.redis.described(), "sound": not wrong, "findings": findings})
    else:
        _show(settings.redis, findings, everything=everything)
    if wrong:
        click.get_current_context().exit(1)


def _show(redis: RedisSettings, findings: Sequence[Finding], *, everything: bool) -> None:
    """A paragraph for each finding: the sentences are too long for the cells of a table."""
    fine = [finding for finding in findings if finding.state == "fine"]
    listed = [finding for finding in findings if everything or finding.state != "fine"]
    for finding in listed:
        where = f" ({finding.node})" if finding.node else ""
        words = Text(_WORDS.get(finding.state, finding.state), style=_STYLES[finding.state])
        output.show([Text.assemble(words, output.note(f": {finding.check}{where}: {finding.what}"))])
        if finding.mend:
            output.show([Padding(output.note(f"to mend it: {finding.mend}"), (0, 0, 0, 4), expand=False)])
    counts = Counter(finding.state for finding in findings)
    said = ", ".join(f"{counts[state]} {_WORDS.get(state, state)}" for state in _WORST_FIRST if counts[state])
    output.show([output.note(f"{redis.described()}: {said} of {len(findings)} checks", "bold")])
    if fine and not everything:
        names = ", ".join(dict.fromkeys(finding.check for finding in fine))
        output.show([output.note(f"fine: {names} (--all lists them)", _STYLES["fine"])])


async def _gather(settings: Settings) -> list[Finding]:
    installation = Installation(settings, name="knell-doctor", patience=session.PATIENCE)
    try:
        findings = [finding async for finding in examine(installation)]
        if settings.clusters:
            findings += [finding async for finding in _clusters(installation)]
        if any(source.collector == CAPA for source in settings.sources.values()):
            findings += [finding async for finding in _aws(installation)]
        if settings.azure.nodes:
            findings += [finding async for finding in _azure(installation)]
        return findings
    finally:
        await installation.aclose()


async def _clusters(installation: Installation) -> AsyncIterator[Finding]:
    """Whatever is wrong with Redis: what can be told of the clusters is told."""
    # Only here: who has no clusters does not wait for the client to be loaded.
    from service.cli.cluster_checks import examine_clusters, examine_moments
    from service.watching.clusters import Identities

    identities = Identities(installation.settings, installation)
    known: dict[str, str] | None = None
    restored: dict[str, Restored] = {}
    with contextlib.suppress(RedisError, OSError, ServerAway):
        await installation.connections.client.execute_command("PING")
        restored = await Witnesses(installation).restored()
        known = await identities.remembered()
    async for finding in examine_clusters(installation.settings, identities, known, restored):
        yield finding
    if known is not None:
        for finding in await examine_moments(installation):
            yield finding


async def _aws(installation: Installation) -> AsyncIterator[Finding]:
    # Only here, as above.
    from service.cli.aws_checks import examine_aws

    async for finding in examine_aws(installation):
        yield finding


async def _azure(installation: Installation) -> AsyncIterator[Finding]:
    # Only here, as above.
    from service.cli.azure_checks import examine_azure

    async for finding in examine_azure(installation):
        yield finding


async def examine(installation: Installation) -> AsyncIterator[Finding]:
    """Check after check; where one makes the others pointless, they are left out."""
    settings = installation.settings.redis
    try:
        await installation.connections.client.execute_command("PING")
        yield Finding(check="reachable", state="fine", what="it answers")
    except NoPermissionError:
        yield Finding(check="reachable", state="fine", what="it answers, though not to PING")
    except Exception as error:
        words = session.explain(error, settings)
        if words is None:
            raise
        what, _, mend = words.rpartition("; ")
        yield Finding(check="reachable", state="wrong", what=what or mend, mend=mend if what else "")
        return
    try:
        async for finding in _examine(installation, settings):
            yield finding
    except Exception as error:
        words = session.explain(error, settings)
        if words is None:
            raise
        yield Finding(check="the rest", state="wrong", what=words, mend="mend what stands above, then look again")


async def _examine(installation: Installation, settings: RedisSettings) -> AsyncIterator[Finding]:
    mode_fits = True
    for facts in await _nodes(installation):
        yield check_version(facts)
        mode = check_mode(facts, settings)
        mode_fits &= mode.state != "wrong"
        yield mode
        yield check_role(facts)
        yield check_persistence(facts)
        yield check_memory(facts)
        yield check_clock(facts)
    if not mode_fits:
        return
    missing = await lacking(installation, installation.shards[0])
    yield check_permissions(missing)
    if "eval" not in missing:
        yield await _scripting(installation)
    if not {"hmget", "hget"} & set(missing) and not any(word.startswith("~") for word in missing):
        yield check_shards(await stored_shards(installation), settings)


async def _scripting(installation: Installation) -> Finding:
    """The scripts need more than Lua: the two codecs that servers bring along."""
    key = installation.keys.of(0, "meta")
    script = "return {type(cmsgpack) == 'table' and 1 or 0, type(cjson) == 'table' and 1 or 0}"
    try:
        answer = await installation.connections.client.execute_command("EVAL", script, 1, key)
    except ResponseError as error:
        if is_away(error):
            raise
        answer, said = [0, 0], output.clean(error)
    else:
        said = "a codec is missing"
    if list(answer) == [1, 1]:
        return Finding(check="scripts", state="fine", what="Lua with cmsgpack and cjson")
    return Finding(
        check="scripts",
        state="wrong",
        what=f"Lua scripts can't be run as needed: {said}",
        mend="use a server with EVAL and the cmsgpack and cjson libraries, as Redis and Valkey have them",
    )


async def _nodes(installation: Installation) -> list[NodeFacts]:
    """What every server that holds one of our shards says of itself."""
    found: dict[str, NodeFacts] = {}
    for shard in installation.shards:
        options = await node_options(shard)
        node = options.get("target_nodes")
        name = f"{node.host}:{node.port}" if node is not None else ""
        if name not in found:
            found[name] = await _facts(shard, name, options)
    return list(found.values())


async def _facts(shard: Shard, name: str, options: dict[str, Any]) -> NodeFacts:
    info = await _asked(shard, "INFO", **options)
    config = await _asked(shard, "CONFIG GET", "appendonly", "save", "appendfsync", "maxmemory-policy", **options)
    before = time.time()
    clock = await _asked(shard, "TIME", **options)
    skew = None
    if clock is not None:
        middle = (before + time.time()) / 2
        skew = timedelta(seconds=int(clock[0]) + int(clock[1]) / 1e6 - middle)
    return NodeFacts(node=name, info=info, config=config, skew=skew)


async def _asked(shard: Shard, *command: Any, **options: Any) -> Any:
    """An answer, or None where the server does not give it to us: managed ones keep some to themselves."""
    try:
        return await shard.caller.command(*command, **options)
    except ResponseError as error:
        if is_away(error):
            raise
        return None
