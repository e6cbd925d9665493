"""`knell plan KIND/NAME`: what would be deleted with an object, in which stages, why, and how long it takes at least.
It only reads: the object, its Namespace, the guard, the budgets; nothing is published, marked or counted."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from redis.exceptions import RedisError
from rich.text import Text

from service.cli import objects, output, plan_guard, session
from service.cli.estimate import Need, Standing, needs
from service.cli.objects import Chosen
from service.cli.reaching import reached_clusters
from service.cli.work import aws_of, azure_of, simulate_option
from service.contract import FINALLY, Draw, Hold, Plan, Target, place_of
from service.contract.aws import CAPA
from service.contract.azure import KARPENTER_AZURE
from service.contract.targets import order_of
from service.contract.traits import traits_of
from service.engine.calls import ServerAway
from service.engine.installation import Installation
from service.engine.views.allowances import allowances
from service.engine.views.reading import server_ms
from service.policy.decisions import Decision
from service.settings import Settings
from workers.handlers.nothing import Nothing
from workers.handlers.objects import About, Collector, Facts
from workers.handlers.protocol import Handler
from workers.handlers.simulated import ProviderAway, Simulated
from workers.judging.weighing import weigh
from workers.judging.wiring import places_in

_STYLES = {"delete": "bold red", "retain": "green"}

T = TypeVar("T")
There = Callable[[Target], Awaitable[bool | None]]
"""Whether a target exists; None where the provider gives no answer."""


@click.command()
@objects.object_argument
@simulate_option
@session.listing_option
@session.config_option
def plan(what: str, namespace: str, cluster: str | None, simulate: str | None, form: str, config: Path | None) -> None:
    """Show what would be deleted with KIND/NAME, in which stages and why, without touching anything.

    KIND is a Kind or a plural, with or without its group (nodeclaim, nodeclaims.karpenter.sh), of a resource that a
    source watches.
    It also tells whether the guard of its source would hold this deletion now, without counting it. The estimate is
    what the budgets alone make it last; providers take their own time on top of it.
    """
    settings = session.prepared(config)
    picture = objects.run(_plan(settings, what, namespace, cluster, simulate))
    if form == "json":
        output.show_json(picture)
    elif form == "name":
        output.show_names(f"{target['kind']}/{target['id']}" for target in picture["targets"])
    else:
        _show(picture)


async def _plan(
    settings: Settings, what: str, namespace: str, cluster: str | None, simulate: str | None
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        provider = Simulated(simulate or "", caller="knell-plan")
        if simulate is not None:
            try:
                await stack.enter_async_context(provider)
            except ProviderAway as error:
                raise session.Trouble(f"can't reach the simulated provider at {simulate} ({error})") from None
        one = await stack.enter_async_context(objects.chosen(settings, what, namespace, cluster))
        facts = await _facts(settings, one)
        decision = weigh(facts, settings.policy)
        installation = Installation(settings, name="knell-cli", patience=session.PATIENCE)
        stack.push_async_callback(installation.aclose)
        guard = await _or_none(plan_guard.look(installation, one))
        if guard is None:
            click.echo(
                "Redis does not answer: what the guard says is not known, the estimate takes all budgets for full.",
                err=True,
            )
        collectors, handlers = list[Collector]([Nothing(), provider]), list[Handler]([provider])
        there: There | None = None
        if one.settings.collector == CAPA:
            clusters = await stack.enter_async_context(reached_clusters(settings))
            places = places_in(settings, clusters, installation)
            stack.push_async_callback(places.aclose)
            # Drawn from no budget: that would be written down.
            side = await stack.enter_async_context(aws_of(settings, places, None))
            collectors.append(side.collector)
            handlers += side.handlers
        if one.settings.collector == KARPENTER_AZURE:
            azure = await stack.enter_async_context(azure_of(settings, places_in(settings, {}, installation), None))
            collectors.append(azure.collector)
            handlers += azure.handlers
            there = azure.there
        plan = await _collected(facts, collectors) if decision.kind in ("delete", "dry-run") else Plan([])
        found = [] if isinstance(plan, Hold) else sorted(plan.targets, key=order_of)
        found, remark = await _sighted(found, there)
        if remark and isinstance(plan, Plan):
            plan = Plan(found, "; ".join(filter(None, (plan.why, remark))))
        estimate = await _estimate(installation, found, handlers, asks=guard is not None)
    return _picture(one, decision, plan, found, estimate) | {"guard": plan_guard.picture(guard, decision)}


async def _facts(settings: Settings, one: Chosen) -> Facts:
    """As the planner would have them if the object went now."""
    live = one.live
    about = About(
        deletion=f"{one.uid}/{one.served.resource}/{live.uid}/1",
        source=one.source,
        cluster=one.uid,
        resource=one.served.resource,
        uid=live.uid,
        name=live.name,
        namespace=live.namespace,
    )
    return Facts(
        about=about,
        settings=one.settings,
        labels=live.labels,
        annotations=live.annotations,
        namespace_annotations=await one.cluster.namespace_marks(live.namespace),
        features=settings.features,
        live=live,
    )


async def _collected(facts: Facts, collectors: Sequence[Collector]) -> Plan | Hold:
    wanted = facts.settings.collector
    collector = next((one for one in collectors if one.name == wanted), None)
    if collector is None:
        return Hold(
            f"this command knows no collector {wanted!r} (there is: {', '.join(one.name for one in collectors)})"
        )
    return await collector.collect(facts)


async def _sighted(targets: list[Target], there: There | None) -> tuple[list[Target], str]:
    """Without those that a plan only names and that are not there now, and a remark on them."""
    asked = [target for target in targets if not target.seen] if there is not None else []
    answers = await asyncio.gather(*map(there, asked)) if there is not None else []
    absent = [target for target, found in zip(asked, answers, strict=True) if found is False]
    parts = [f"looked for and not there now: {_listed(absent)}"] if absent else []
    if unread := [target for target, found in zip(asked, answers, strict=True) if found is None]:
        parts.append(f"the provider gives no answer about: {_listed(unread)}")
    gone = {id(target) for target in absent}
    return [target for target in targets if id(target) not in gone], "; ".join(parts)


def _listed(targets: Sequence[Target]) -> str:
    return ", ".join(f"{target.kind} {target.id}" for target in targets)


async def _or_none(reading: Awaitable[T]) -> T | None:
    """Without Redis there is still a plan."""
    try:
        return await reading
    except (RedisError, OSError, ServerAway):
        return None


async def _estimate(
    installation: Installation,
    targets: Sequence[Target],
    handlers: Sequence[Handler],
    *,
    asks: bool,
) -> list[Need]:
    """From the budgets as they are now; without Redis as if nobody had used them."""
    drawn = [
        (place_of(target.lane), Draw(installation.budgets.in_force(draw.limit), draw.cost))
        for target in targets
        for draw in _draws(target.lane, handlers)
    ]
    found = await _or_none(_standing(installation, targets)) if drawn and asks else None
    return needs(drawn, found or {}, datetime.now(UTC))


def _draws(lane: str, handlers: Sequence[Handler]) -> Sequence[Draw]:
    return next((claim for handler in handlers if (claim := handler.draws(lane)) is not None), ())


async def _standing(installation: Installation, targets: Sequence[Target]) -> dict[tuple[str, str], Standing]:
    now = await server_ms(installation.shards[0])
    found = await allowances(installation, {target.lane for target in targets}, now)
    return {(one.place, one.limit): Standing(one.tokens, one.factor * one.learned, one.paused_until) for one in found}


def _picture(
    one: Chosen, decision: Decision, plan: Plan | Hold, targets: list[Target], estimate: list[Need]
) -> dict[str, Any]:
    return {
        "object": {
            "cluster": one.cluster.name,
            "cluster_uid": one.uid,
            "resource": one.served.resource,
            "namespace": one.live.namespace,
            "name": one.live.name,
            "uid": one.live.uid,
            "going": one.live.going,
            "finalizer": traits_of(one.settings.collector).finalizer in one.live.finalizers,
        },
        "source": one.source,
        "mode": one.settings.mode,
        "collector": one.settings.collector,
        "decision": {"kind": decision.kind, "reason": decision.reason, "annotation": decision.mark},
        "held": plan.reason if isinstance(plan, Hold) else "",
        "remark": "" if isinstance(plan, Hold) else plan.why,
        "targets": [
            {
                "chain": target.chain,
                "stage": target.stage,
                "kind": target.kind,
                "id": target.id,
                "strategy": target.strategy,
                "lane": target.lane,
            }
            for target in targets
        ],
        "estimate": {
            "at_least": max((need.wait for need in estimate), default=None),
            "limits": [need._asdict() for need in estimate],
        },
    }


def _show(picture: dict[str, Any]) -> None:
    known, decision, targets = picture["object"], picture["decision"], picture["targets"]
    where = f"{known['resource']} {known['namespace']}/{known['name']}" if known["namespace"] else known["name"]
    word = Text(decision["kind"], style=_STYLES.get(decision["kind"], "yellow"))
    rows = [
        ("cluster", f"{known['cluster']} ({known['cluster_uid']})"),
        ("uid", known["uid"]),
        ("source", f"{picture['source']}, mode {picture['mode']}, collector {picture['collector']}"),
        ("state", _state(known, picture["mode"])),
        ("policy says", word),
        ("because", decision["reason"]),
        ("held, for", picture["held"]),
        ("remark", picture["remark"]),
        ("guard", plan_guard.shown(picture["guard"])),
    ]
    output.show([output.facts(where, rows)])
    if targets:
        columns = ("chain", "stage", "kind", "id", "strategy", "lane")
        listed = [tuple(target[column] for column in columns) for target in targets]
        number = sum(target["chain"] != FINALLY for target in targets)
        count = "1 resource" if number == 1 else f"{number} resources"
        title = f"{count} would be removed; stages of a chain wait for each other"
        output.show([output.table(title, columns, listed, numbers=("stage",), wide=("strategy", "lane"))])
    elif not picture["held"]:
        output.show([output.note("Nothing outside the cluster would be removed.")])
    _show_estimate(picture["estimate"])


def _show_estimate(estimate: dict[str, Any]) -> None:
    if not estimate["limits"]:
        return
    columns = ("place", "limit", "wanted", "available", "per_second", "wait")
    rows = [[*(need[column] for column in columns[:-1]), output.span(need["wait"])] for need in estimate["limits"]]
    title = f"The budgets make it last {output.span(estimate['at_least'])} at least"
    output.show([output.table(title, columns, rows, numbers=columns[2:])])


def _state(known: dict[str, Any], mode: str) -> str:
    if known["going"]:
        return "going, with our finalizer" if known["finalizer"] else "going, without our finalizer"
    if mode == "finalizer" and not known["finalizer"]:
        return "lives, without our finalizer: deleted now, nothing of this would happen (`knell gc enable` adds it)"
    return "lives"
