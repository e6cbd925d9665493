"""Claim of a Cluster API cluster on AWS to a resource, as it is stored in a target."""

from typing import Literal

from service.sources.capa import CAPA
from workers.providers.aws.model import AwsClaim

OwnerTag = Literal["ccm", "lbc"]
"""Which tag identifies a resource: the cloud provider's (ccm) or the Load Balancer Controller's (lbc)."""


class CapaClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag=CAPA):
    """The Cluster API cluster that owns a resource. `name` is the one in its tags; with `vpc`, resources in another VPC
    are not its own; `by` says which tag identifies the resource."""

    name: str
    vpc: str = ""
    by: OwnerTag = "ccm"
    # Security groups that the object's spec names: the user's own, whatever their tags say.
    spared: tuple[str, ...] = ()
    # Security groups with the other of the two tags are deleted as well, so their rules are not foreign.
    both: bool = False
    # Load balancers with the cloud provider's tag are deleted as well, so their listeners may be, too.
    balancers: bool = False
    # The object's creation time in milliseconds, and whether its annotation adopts older resources.
    made: int = 0
    adopted: bool = False
