"""GetResources: everything tagged in one region, the living, the dead and the strays, page by page.
A list is made once and handed out in pages, so that what is deleted in between neither ends nor shortens it."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from standins.aws.answers import Answer, failed, succeeded_in_json
from standins.aws.behaviour import Behaviour
from standins.aws.calls import Call
from standins.aws.ghosts import Ghosts, Tagged, arn_of
from standins.aws.moto_side import ec2_of, elb_of, elbv2_of
from standins.clock import Clock

_TOKEN_LIVES: Final = 900.0
_LARGEST_PAGE: Final = 100
_USUAL_PAGE: Final = 50
# As tags name them by the front of an id, and as ARNs name them.
_EC2: Final = {
    "i": "instance",
    "igw": "internet-gateway",
    "nat": "natgateway",
    "eni": "network-interface",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
    "rtb": "route-table",
    "eipalloc": "elastic-ip",
}


@dataclass(slots=True)
class _Rest:
    left: list[Tagged]
    pages: int
    until: float


class Tagging:
    def __init__(self, clock: Clock, ghosts: Ghosts) -> None:
        self._clock, self._ghosts = clock, ghosts
        self._rests: dict[str, _Rest] = {}
        # By account and region: what there is, and since when it is.
        self._since: dict[tuple[str, str], dict[str, float]] = {}

    def note(self, call: Call, behaviour: Behaviour) -> None:
        """Before and after what makes something: what is there only then is new. Only where new ones show late: it
        looks through the whole region."""
        if behaviour.unlisted <= 0:
            self._since.clear()
            return
        place = call.account, call.region
        since = self._clock.now() if place in self._since else float("-inf")
        known = self._since.setdefault(place, {})
        for arn, _ in _living(call):
            known.setdefault(arn, since)

    def get_resources(self, call: Call, behaviour: Behaviour) -> Answer:
        size = int(call.params.get("ResourcesPerPage") or _USUAL_PAGE)
        if not 1 <= size <= _LARGEST_PAGE:
            return failed(call, "InvalidParameterException", f"ResourcesPerPage must be 1 to {_LARGEST_PAGE}")
        now = self._clock.now()
        if token := call.text("PaginationToken"):
            rest = self._rests.pop(token, None)
            if rest is None or rest.until < now:
                return failed(call, "PaginationTokenExpiredException", "The pagination token has expired")
        else:
            rest = _Rest(self._list(call, behaviour), 0, 0.0)
        uneven = behaviour.uneven_pages and (rest.pages or len(rest.left) > size)
        # The second page of a long list is short and its third is empty: both happen, and neither is the end.
        taken = {1: max(1, size // 2), 2: 0}.get(rest.pages, size) if uneven else size
        page, left = rest.left[:taken], rest.left[taken:]
        following = ""
        if left:
            following = str(uuid.uuid4())
            self._rests[following] = _Rest(left, rest.pages + 1, now + _TOKEN_LIVES)
        shown = [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in page
        ]
        return succeeded_in_json({"PaginationToken": following, "ResourceTagMappingList": shown})

    def _list(self, call: Call, behaviour: Behaviour) -> list[Tagged]:
        found: dict[str, dict[str, str]] = dict(self._ghosts.shown(call, behaviour.ghosts))
        hidden = self._newcomers(call, behaviour.unlisted)
        found |= {arn: tags for arn, tags in _living(call) if arn not in hidden}
        found |= {one.arn: one.tags for one in behaviour.strays if one.account in ("", call.account)}
        wanted = call.params.get("TagFilters") or []
        types = call.params.get("ResourceTypeFilters") or []
        arns = call.params.get("ResourceARNList") or []
        return [
            (arn, tags)
            for arn, tags in sorted(found.items())
            if tags and _meets(tags, wanted) and _is_of(arn, types) and (not arns or arn in arns)
        ]

    def _newcomers(self, call: Call, seconds: float) -> set[str]:
        """Those that came within so many seconds."""
        known = self._since.get((call.account, call.region), {}) if seconds > 0 else {}
        return {arn for arn, at in known.items() if at > self._clock.now() - seconds}


def _living(call: Call) -> Iterator[Tagged]:
    ec2, elbv2 = ec2_of(call), elbv2_of(call)
    for one, tags in ec2.tags.items():
        kind = _EC2.get(one.rpartition("-")[0])
        if tags and kind is not None and _is_there(ec2, kind, one):
            yield arn_of(call, "ec2", f"{kind}/{one}"), tags
    for balancer in elb_of(call).load_balancers.values():
        yield arn_of(call, "elasticloadbalancing", f"loadbalancer/{balancer.name}"), balancer.tags
    tags_of = elbv2.tagging_service.get_tag_dict_for_resource
    for arn, balancer in elbv2.load_balancers.items():
        yield arn, tags_of(arn)
        for listener in balancer.listeners:
            yield listener, tags_of(listener)
    for arn in elbv2.target_groups:
        yield arn, tags_of(arn)


def _is_there(ec2: Any, kind: str, one: str) -> bool:
    """moto keeps the tags of what it deleted."""
    match kind:
        case "security-group":
            return any(one in groups for groups in ec2.groups.values())
        case "security-group-rule":
            return any(group.get_rule(one) for groups in ec2.groups.values() for group in groups.values())
        case "subnet":
            return any(one in subnets for subnets in ec2.subnets.values())
        case "elastic-ip":
            return any(address.allocation_id == one for address in ec2.addresses)
        case "instance":
            return True
    held = {
        "internet-gateway": ec2.internet_gateways,
        "natgateway": ec2.nat_gateways,
        "network-interface": ec2.enis,
        "snapshot": ec2.snapshots,
        "volume": ec2.volumes,
        "vpc": ec2.vpcs,
        "vpc-endpoint": ec2.vpc_end_points,
        "route-table": ec2.route_tables,
    }
    return one in held[kind]


def _meets(tags: dict[str, str], wanted: list[dict[str, Any]]) -> bool:
    return all(one["Key"] in tags and (not one.get("Values") or tags[one["Key"]] in one["Values"]) for one in wanted)


def _is_of(arn: str, types: list[str]) -> bool:
    """As `ec2` or `ec2:security-group`."""
    service, resource = arn.split(":")[2], arn.split(":", 5)[-1].split("/")[0]
    return not types or service in types or f"{service}:{resource}" in types
