"""`knell plan KIND/NAME`: shows what would be deleted with an object, in which stages, why, and how long it takes.
It only reads the object, its Namespace, the guard and the budgets; nothing is published, marked or counted."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from redis.exceptions import RedisError
from rich.text import Text

from service.cli import cluster_clients, object_lookup, output, session
from service.cli.cluster_clients import connect_clusters
from service.cli.object_lookup import ResolvedObject
from service.cli.plan_estimate import LimitState, LimitWait, estimate_waits
from service.contract import FINALLY, Draw, Hold, Plan, Target, place_of
from service.contract.targets import order_of
from service.durations import format_duration
from service.engine.batch_reads import server_ms
from service.engine.calls import ServerUnavailable
from service.engine.guard import DeletedObject
from service.engine.installation import Installation
from service.engine.views.guard_forecast import GuardForecast, guard_forecast
from service.engine.views.limits import limit_states
from service.policy.decisions import PolicyDecision
from service.settings import Settings
from service.sources.registry import known_sources, source_named
from workers.app import App, open_app
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.handlers.components import ExistsCheck
from workers.handlers.protocol import Handler
from workers.judging.default_policies import DefaultPolicies
from workers.judging.policy_decision import policy_decision

_STYLES = {"delete": "bold red", "retain": "green"}

T = TypeVar("T")


@click.command()
@object_lookup.object_argument
@session.listing_option
@session.config_option
def plan(what: str, namespace: str, cluster: str | None, form: str, config: Path | None) -> None:
    """Show what would be deleted with KIND/NAME, in which stages and why, without touching anything.

    KIND is a Kind or a plural, with or without its group (nodeclaim, nodeclaims.karpenter.sh), of a resource that a
    source watches.
    It also tells whether the guard of its source would hold this deletion now, without counting it. The estimate is
    what the budgets alone make it last; providers take their own time on top of it.
    """
    settings = session.interactive_settings(config)
    document = cluster_clients.run_with_clusters(_plan(settings, what, namespace, cluster))
    if form == "json":
        output.show_json(document)
    elif form == "name":
        output.show_names(f"{target['kind']}/{target['id']}" for target in document["targets"])
    else:
        _show(document)


async def _plan(settings: Settings, what: str, namespace: str, cluster: str | None) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(object_lookup.resolve_object(settings, what, namespace, cluster))
        facts = await _facts(settings, one)
        decision = policy_decision(facts, settings.policy)
        facts = msgspec.structs.replace(facts, snapshot=decision.snapshot)
        installation = Installation(settings, name="knell-cli", patience=session.PATIENCE)
        stack.push_async_callback(installation.aclose)
        guard = await _none_without_redis(_read_guard(installation, one))
        if guard is None:
            click.echo(
                "Redis does not answer: what the guard says is not known, the estimate takes all budgets for full.",
                err=True,
            )
        collector = one.settings.collector
        # What owns nothing outside needs no cluster beside its own.
        connects = bool(source_named(collector).components)
        clusters = await stack.enter_async_context(connect_clusters(settings)) if connects else {}
        # Nothing is counted: the budgets would be written to.
        app = await stack.enter_async_context(
            open_app(settings, clusters, installation, collectors=[collector], counted=False)
        )
        plan = await _collect(facts, app) if decision.kind in ("delete", "dry-run") else Plan([])
        found = [] if isinstance(plan, Hold) else sorted(plan.targets, key=order_of)
        found, remark = await _without_absent(found, app.exists_check(collector))
        if remark and isinstance(plan, Plan):
            plan = Plan(found, "; ".join(filter(None, (plan.why, remark))))
        estimate = await _estimate(installation, found, app.handlers, asks=guard is not None)
    return _as_document(one, decision, plan, found, estimate) | {"guard": _guard_document(guard, decision)}


async def _facts(settings: Settings, one: ResolvedObject) -> ObjectFacts:
    """The facts that a planner would have if the object were deleted now."""
    live = one.live
    ref = ObjectRef(
        deletion=f"{one.uid}/{one.served.resource}/{live.uid}/1",
        source=one.source,
        cluster=one.uid,
        resource=one.served.resource,
        uid=live.uid,
        name=live.name,
        namespace=live.namespace,
    )
    return ObjectFacts(
        ref=ref,
        settings=one.settings,
        labels=live.labels,
        annotations=live.annotations,
        namespace_annotations=await one.cluster.namespace_annotations(live.namespace),
        features=settings.features,
        live=live,
        default_policy=await DefaultPolicies(settings).of(one.settings, one.cluster),
    )


async def _collect(facts: ObjectFacts, app: App) -> Plan | Hold:
    wanted = facts.settings.collector
    opened = app.components.get(wanted)
    if opened is None:
        known = ", ".join(source.name for source in known_sources())
        return Hold(f"this command knows no collector {wanted!r} (there is: {known})")
    return await opened.collector.collect(facts)


async def _without_absent(targets: list[Target], exists: ExistsCheck | None) -> tuple[list[Target], str]:
    """Targets without those that the plan only derived and that do not exist, and a remark on these."""
    asked = [target for target in targets if not target.seen] if exists is not None else []
    answers = await asyncio.gather(*map(exists, asked)) if exists is not None else []
    absent = [target for target, found in zip(asked, answers, strict=True) if found is False]
    parts = [f"looked for and not there now: {_listed(absent)}"] if absent else []
    if unread := [target for target, found in zip(asked, answers, strict=True) if found is None]:
        parts.append(f"the provider gives no answer about: {_listed(unread)}")
    gone = {id(target) for target in absent}
    return [target for target in targets if id(target) not in gone], "; ".join(parts)


def _listed(targets: Sequence[Target]) -> str:
    return ", ".join(f"{target.kind} {target.id}" for target in targets)


async def _none_without_redis(reading: Awaitable[T]) -> T | None:
    """None if Redis can't be reached; the plan is shown nevertheless."""
    try:
        return await reading
    except (RedisError, OSError, ServerUnavailable):
        return None


async def _estimate(
    installation: Installation,
    targets: Sequence[Target],
    handlers: Sequence[Handler],
    *,
    asks: bool,
) -> list[LimitWait]:
    """From the current budgets; without Redis as if they were full."""
    drawn = [
        (place_of(target.lane), Draw(installation.budgets.in_force(draw.limit), draw.cost))
        for target in targets
        for draw in _draws_of(target.lane, handlers)
    ]
    found = await _none_without_redis(_read_limits(installation, targets)) if drawn and asks else None
    return estimate_waits(drawn, found or {}, datetime.now(UTC))


def _draws_of(lane: str, handlers: Sequence[Handler]) -> Sequence[Draw]:
    return next((claim for handler in handlers if (claim := handler.draws(lane)) is not None), ())


async def _read_limits(installation: Installation, targets: Sequence[Target]) -> dict[tuple[str, str], LimitState]:
    now = await server_ms(installation.shards[0])
    found = await limit_states(installation, {target.lane for target in targets}, now)
    return {(one.place, one.limit): LimitState(one.tokens, one.factor * one.learned, one.paused_until) for one in found}


def _as_document(
    one: ResolvedObject, decision: PolicyDecision, plan: Plan | Hold, targets: list[Target], estimate: list[LimitWait]
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
            "finalizer": source_named(one.settings.collector).finalizer in one.live.finalizers,
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


def _show(document: dict[str, Any]) -> None:
    known, decision, targets = document["object"], document["decision"], document["targets"]
    where = f"{known['resource']} {known['namespace']}/{known['name']}" if known["namespace"] else known["name"]
    word = Text(decision["kind"], style=_STYLES.get(decision["kind"], "yellow"))
    rows = [
        ("cluster", f"{known['cluster']} ({known['cluster_uid']})"),
        ("uid", known["uid"]),
        ("source", f"{document['source']}, mode {document['mode']}, collector {document['collector']}"),
        ("state", _state(known, document["mode"])),
        ("policy says", word),
        ("because", decision["reason"]),
        ("held, for", document["held"]),
        ("remark", document["remark"]),
        ("guard", _guard_text(document["guard"])),
    ]
    output.show([output.facts(where, rows)])
    if targets:
        columns = ("chain", "stage", "kind", "id", "strategy", "lane")
        listed = [tuple(target[column] for column in columns) for target in targets]
        number = sum(target["chain"] != FINALLY for target in targets)
        count = "1 resource" if number == 1 else f"{number} resources"
        title = f"{count} would be removed; stages of a chain wait for each other"
        output.show([output.table(title, columns, listed, numbers=("stage",), wide=("strategy", "lane"))])
    elif not document["held"]:
        output.show([output.note("Nothing outside the cluster would be removed.")])
    _show_estimate(document["estimate"])


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


# ---- guard


async def _read_guard(installation: Installation, one: ResolvedObject) -> GuardForecast:
    # Without retries, so that an unreachable server is reported at once.
    await installation.connections.client.execute_command("PING")
    return await guard_forecast(
        installation, one.source, DeletedObject(one.live.uid, one.live.deleting), one.settings.guard
    )


def _guard_document(guard: GuardForecast | None, decision: PolicyDecision) -> dict[str, Any] | None:
    """None without Redis. The guard does not count a deletion that retains everything."""
    if guard is None:
        return None
    found: dict[str, Any] = {name: getattr(guard, name) for name in guard.__struct_fields__ if name != "source"}
    asked = guard.limit is not None and decision.kind != "retain"
    return {**found, "asked": asked, "holds": guard.holds and asked, "says": _guard_words(guard, asked=asked)}


def _guard_text(guard: dict[str, Any] | None) -> Text:
    if guard is None:
        return Text("not known: Redis does not answer", style="yellow")
    return Text(output.clean(guard["says"]), style="yellow" if guard["holds"] else "")


def _guard_words(guard: GuardForecast, *, asked: bool) -> str:
    if guard.limit is None:
        return "is off"
    if not asked:
        return "is not asked: nothing outside would be removed"
    taken = f"{guard.counted} of {guard.limit} deletions within {format_duration(guard.window)} are counted"
    if guard.holds and guard.tripped is not None:
        return f"would hold it, tripped since {output.moment(guard.tripped)}, {taken}; {guard.why}"
    if guard.holds:
        return f"would trip and hold it, {taken}; {guard.why}"
    return f"has let it through already, {taken}" if guard.passed else f"would let it through, {taken}"
