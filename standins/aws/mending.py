"""Replaces the few methods of moto that are wrong or slow beyond what an answer from outside could mend.
Tags are looked up instead of searched for, and filters mean what they mean at AWS: any of the values."""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import moto.ec2.models.security_groups
import moto.ec2.utils
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.nat_gateways import NatGateway, NatGatewayBackend
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.ec2.models.vpcs import VPCEndPoint
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, generic_filter, get_prefix


def mend() -> None:
    TaggedEC2Resource.get_tags = _tags
    NatGatewayBackend.describe_nat_gateways = _nat_gateways
    NatGateway.get_filter_value = _by_id("nat-gateway-id", NatGateway.get_filter_value)
    VPCEndPoint.get_filter_value = _by_id("vpc-endpoint-id", VPCEndPoint.get_filter_value)
    InstanceResponse.describe_instances = _instances
    SecurityGroupRule.description = property(_description)
    moto.ec2.utils.is_filter_matching = _meets
    moto.ec2.models.security_groups.aws_api_matches = _is


def _tags(self: Any) -> list[dict[str, str]]:
    """moto walks the tags of every resource, for every resource."""
    if not self.id:
        return []
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(self.id), "")
    own = self.ec2_backend.tags.get(self.id, {})
    return [
        {"resource_id": self.id, "key": key, "value": value, "resource_type": kind} for key, value in list(own.items())
    ]


def _description(self: Any) -> str | None:
    """moto keeps that of a rule about another group, and does not show it."""
    found: str | None = self.ip_range.get("Description") or self.source_group.get("Description")
    return found


def _nat_gateways(self: Any, filters: Any, nat_gateway_ids: list[str] | None) -> list[Any]:
    """moto knows no tag filter, and calls an unknown id an empty list."""
    for one in nat_gateway_ids or []:
        if one not in self.nat_gateways:
            raise EC2ClientError("NatGatewayNotFound", f"NAT gateway {one} was not found")
    wanted = [one for one in self.nat_gateways.values() if not nat_gateway_ids or one.id in nat_gateway_ids]
    return list(generic_filter(filters, wanted))


def _instances(self: Any) -> Any:
    """moto cuts pages of its own from this list alone, of at most a hundred."""
    ids, filters = self._get_param("InstanceIds", []), self._filters_from_querystring()
    if ids:
        found = self.ec2_backend.get_reservations_by_instance_ids(ids, filters=filters)
    else:
        found = self.ec2_backend.describe_instances(filters=filters)
    return ActionResult({"Reservations": found})


def _by_id(name: str, others: Any) -> Any:
    """moto does not know the filter by which these are found by id."""
    return lambda self, wanted, method=None: self.id if wanted == name else others(self, wanted, method)


def _meets(one: Any, name: str, wanted: Any) -> bool:
    """moto wants all values of a filter, or only such, where a resource has several (an interface its groups)."""
    value = one.get_filter_value(name)
    if value is None or wanted is None:
        return False
    values: Any = value if isinstance(value, list | set | tuple | type({}.keys())) else [value]
    plain, patterns = _sorted_out(tuple(wanted) if isinstance(wanted, list) else (wanted,))
    return any(each in plain or any(fnmatchcase(each, pattern) for pattern in patterns) for each in map(_spelt, values))


@lru_cache(maxsize=8)
def _sorted_out(wanted: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Hundreds of ids are asked for, of hundreds of resources; hardly any of them is a pattern."""
    patterns = tuple(one for one in wanted if "*" in one or "?" in one)
    return frozenset(wanted) - frozenset(patterns), patterns


def _is(pattern: str, value: Any) -> bool:
    """moto makes a regular expression of every id."""
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(str(value), pattern)
    return pattern == str(value)


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(moto.ec2.utils.format_timestamp(value)) if hasattr(value, "isoformat") else str(value)
