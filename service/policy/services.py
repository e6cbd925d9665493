"""Service of an object, for annotations and settings that apply to one service.

For ACK's API groups it is the first label of the group, for every other source it is a setting.
"""

import re
from typing import Final

from service.contract.names import ACK_PREFIX
from service.policy.decisions import quoted

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST: Final = 200
"""The API server allows prefixes of up to 253 characters; the suffix after the service needs some of them."""


def service_of(group: str, setting: str) -> str:
    """`s3` for s3.services.k8s.aws; else the setting, which may be empty."""
    if group.endswith(f".{ACK_PREFIX}"):
        return group.partition(".")[0]
    return normalized(setting)


def normalized(service: str) -> str:
    """Annotation prefixes are lower case, so other spellings of a service mean the same."""
    return service.strip().lower()


def service_fault(service: str) -> str:
    """Why no annotation can name this service; empty where one can, or where the service is empty.

    Annotations for such a service have another name, so that their absence proves nothing.
    """
    if not service or (len(service) <= _LONGEST and _DOMAIN.fullmatch(service)):
        return ""
    return (
        f"the service {quoted(service)} can't be the prefix of an annotation, so annotations for it can't be "
        f"recognised; allowed: lower-case letters, digits, hyphens and dots"
    )
