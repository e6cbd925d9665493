"""The service that an object belongs to, by which annotations and settings can single it out.

For ACK's groups it is the group's first label, for every other source it is what the setting says.
"""

import re
from typing import Final

from service.contract.names import ACK_PREFIX
from service.policy.decisions import shown

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST: Final = 200
"""The server takes prefixes of up to 253 characters; what is put behind the service needs some of them."""


def service_of(group: str, setting: str) -> str:
    """`s3` for s3.services.k8s.aws; else the source's setting, which may be empty."""
    if group.endswith(f".{ACK_PREFIX}"):
        return group.partition(".")[0]
    return normal(setting)


def normal(service: str) -> str:
    """Prefixes of annotations are small letters always, so a service named otherwise means the same."""
    return service.strip().lower()


def service_fault(service: str) -> str:
    """Why no annotation can name this service; empty where one can, or where there is none to name.

    Annotations meant for such a service are there under another name, so nobody may go on as if there were none.
    """
    if not service or (len(service) <= _LONGEST and _DOMAIN.fullmatch(service)):
        return ""
    return (
        f"the service {shown(service)} can't be the prefix of an annotation, so nobody can tell what was "
        f"said for it; allowed: small letters, digits, hyphens and dots"
    )
