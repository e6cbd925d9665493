"""What a NodeClaim has on Azure: the kinds of its resources, and the claim that is stored in every target's data."""

from typing import Final

from workers.providers.azure.claims import AzureClaim
from workers.providers.azure.kinds import ADDRESS, DISK, NIC, VM

STAGES: Final = {VM: 0, NIC: 1, DISK: 2, ADDRESS: 2}
"""The kinds, in the order in which they are removed: a later stage waits for the earlier ones."""


class KarpenterClaim(AzureClaim, frozen=True, kw_only=True, omit_defaults=True):
    """`claim` is the NodeClaim that owns the target, and `cluster` the name of its cluster in the tags. What a sweep
    checked is `judged`."""

    claim: str
    cluster: str
    # When the NodeClaim was created, in milliseconds; 0 if unknown, as for an orphan.
    made: int = 0
