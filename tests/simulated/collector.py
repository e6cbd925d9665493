"""Collector of the simulated provider: the targets that an object's spec names.
`recognise` is the watch side's part, `collected` the worker's."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.contract import Hold, Plan, Target
from service.sources.declaration import Unrecognisable
from workers.handlers.collector import ObjectFacts

NAME = "simulated"
"""The collector, and the kind of its targets."""


class NamedTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    account: str
    id: str
    region: str = "here"
    chain: str = "main"
    stage: int = 0
    strategy: Literal["required", "best-effort"] = "required"


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources that an object owns, as its spec or the inventory names them; `owner` is their tag."""

    owner: str = ""
    targets: tuple[NamedTarget, ...] = ()


class _Object(msgspec.Struct, frozen=True):
    spec: Spec = Spec()


def recognise(raw: bytes) -> str:
    """The spec as the inventory keeps it."""
    try:
        return msgspec.json.encode(msgspec.json.decode(raw, type=_Object).spec).decode()
    except msgspec.DecodeError as error:
        raise Unrecognisable(f"the spec does not name its targets as the simulated provider wants: {error}") from None


def collected(facts: ObjectFacts) -> Plan | Hold:
    """Resources are tagged with the owner that the spec names, else with the object's uid. If the tag is the object's
    name and a namesake lives, the resources may be the namesake's, and none is planned."""
    try:
        if facts.live is not None:
            spec = msgspec.json.decode(facts.live.raw, type=_Object).spec
        else:
            spec = msgspec.json.decode(facts.recognises or "{}", type=Spec)
    except msgspec.DecodeError as error:
        return Hold(f"the object does not name its targets as the simulated provider wants: {error}", again=True)
    ref = facts.ref
    if facts.namesake and spec.owner in (ref.name, f"{ref.namespace}/{ref.name}"):
        return Plan([])
    return Plan(targets_of(spec.owner or ref.uid, spec.targets))


def targets_of(owner: str, named: Sequence[NamedTarget]) -> list[Target]:
    return [
        Target(
            kind=NAME,
            id=target.id,
            lane=lane_of(target.account, target.region, "delete"),
            chain=target.chain,
            stage=target.stage,
            strategy=target.strategy,
            data=owner,
        )
        for target in named
    ]


def lane_of(account: str, region: str, operation: str) -> str:
    return f"{NAME}/{account}/{region}/{operation}"
