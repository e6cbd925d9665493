"""Claim of an object of ACK to a resource, as it is stored in a target."""

from service.contract.names import ACK_PREFIX
from service.sources.ack import ACK
from workers.providers.aws.model import AwsClaim


class AckClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag=ACK):
    """The object that a resource belongs to: service, kind and name of the object, whose namespace is in `scope`; and
    the identifier that the inventory saw while the object was synced."""

    service: str
    kind: str
    name: str
    # The provider's kind and id, as in the target.
    removes: str
    identifier: str
    arn: str = ""
    # The object's creation time in milliseconds.
    made: int = 0

    @property
    def label(self) -> str:
        return f"{self.kind}.{self.service}.{ACK_PREFIX} {self.scope.namespace}/{self.name}"
