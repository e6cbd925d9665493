"""Azure role definition with the permissions that the removal and the sweep of nodes need, generated from the kinds of
a NodeClaim's resources. `python -m workers.collectors.karpenter_azure.permissions FILE` writes it; it names no
subscription."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from workers.collectors.karpenter_azure.claim import STAGES

NAME: Final = "Knell node cleanup"
TAGS: Final = "Microsoft.Resources/tags/write"
"""For azure.mark_retained: it writes and removes tags, and nothing else of a resource."""

SCOPE: Final = "/subscriptions/SUBSCRIPTION/resourceGroups/NODE_RESOURCE_GROUP"
"""To be filled in; the node resource group suffices."""


def role_definition() -> dict[str, Any]:
    """In the format of `az role definition create --role-definition FILE`. Resource Graph needs no permission of its
    own: it shows what the others allow to read."""
    return {
        "Name": NAME,
        "IsCustom": True,
        "Description": "Removes virtual machines, network interfaces, disks and public addresses of dead nodes.",
        "Actions": sorted({TAGS, *(action for kind in STAGES for action in kind.permissions)}),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": [SCOPE],
    }


def as_text() -> str:
    return json.dumps(role_definition(), indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(as_text())
