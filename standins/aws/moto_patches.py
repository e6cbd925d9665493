"""Patches for methods of moto that are wrong or too slow and can't be corrected from outside.
Tags are looked up instead of searched for, and a filter matches any of its values, as at AWS."""

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


def patch_moto() -> None:
    TaggedEC2Resource.get_tags = _tags
    NatGatewayBackend.describe_nat_gateways = _nat_gateways
    NatGateway.get_filter_value = _by_id("nat-gateway-id", NatGateway.get_filter_value)
    VPCEndPoint.get_filter_value = _by_id("vpc-endpoint-id", VPCEndPoint.get_filter_value)
    InstanceResponse.describe_instances = _instances
    SecurityGroupRule.description = property(_description)
    moto.ec2.utils.is_filter_matching = _filter_matches
    moto.ec2.models.security_groups.aws_api_matches = _value_matches


def _tags(self: Any) -> list[dict[str, str]]:
    """moto goes through the tags of all resources for each resource."""
    if not self.id:
        return []
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(self.id), "")
    own = self.ec2_backend.tags.get(self.id, {})
    return [
        {"resource_id": self.id, "key": key, "value": value, "resource_type": kind} for key, value in list(own.items())
    ]


def _description(self: Any) -> str | None:
    """moto does not show the description of a rule that names another group."""
    found: str | None = self.ip_range.get("Description") or self.source_group.get("Description")
    return found


def _nat_gateways(self: Any, filters: Any, nat_gateway_ids: list[str] | None) -> list[Any]:
    """moto has no tag filter, and returns an empty list for an unknown id."""
    for one in nat_gateway_ids or []:
        if one not in self.nat_gateways:
            raise EC2ClientError("NatGatewayNotFound", f"NAT gateway {one} was not found")
    wanted = [one for one in self.nat_gateways.values() if not nat_gateway_ids or one.id in nat_gateway_ids]
    return list(generic_filter(filters, wanted))


def _instances(self: Any) -> Any:
    """moto has its own pages for this list, of at most a hundred."""
    ids, filters = self._get_param("InstanceIds", []), self._filters_from_querystring()
    if ids:
        found = self.ec2_backend.get_reservations_by_instance_ids(ids, filters=filters)
    else:
        found = self.ec2_backend.describe_instances(filters=filters)
    return ActionResult({"Reservations": found})


def _by_id(name: str, others: Any) -> Any:
    """moto lacks the filter by id."""
    return lambda self, wanted, method=None: self.id if wanted == name else others(self, wanted, method)


def _filter_matches(one: Any, name: str, wanted: Any) -> bool:
    """moto demands all values of a filter where a resource has several values (the groups of an interface)."""
    value = one.get_filter_value(name)
    if value is None or wanted is None:
        return False
    values: Any = value if isinstance(value, list | set | tuple | type({}.keys())) else [value]
    plain, patterns = _split_patterns(tuple(wanted) if isinstance(wanted, list) else (wanted,))
    return any(
        each in plain or any(fnmatchcase(each, pattern) for pattern in patterns) for each in map(_as_text, values)
    )


@lru_cache(maxsize=8)
def _split_patterns(wanted: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Cached: requests name hundreds of ids and match them with hundreds of resources; few are patterns."""
    patterns = tuple(one for one in wanted if "*" in one or "?" in one)
    return frozenset(wanted) - frozenset(patterns), patterns


def _value_matches(pattern: str, value: Any) -> bool:
    """moto compiles a regular expression for every id."""
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(str(value), pattern)
    return pattern == str(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(moto.ec2.utils.format_timestamp(value)) if hasattr(value, "isoformat") else str(value)
