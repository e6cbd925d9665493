"""Where things are made that do not say where: one subscription, the resource group of a node pool, one region.
Tests and figures that need no other name take these."""

from typing import Final

SUBSCRIPTION: Final = "00000000-0000-4000-8000-000000000001"
TENANT: Final = "00000000-0000-4000-8000-00000000000f"
GROUP: Final = "mc_pool"
REGION: Final = "westeurope"
