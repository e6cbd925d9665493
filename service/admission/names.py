"""Names of what protection at the door has in a cluster: admission policies, webhook configuration, HTTP path."""

from typing import Final

POLICY: Final = "knell-protection"
"""The admission policy that denies deletions of protected objects, and its binding."""
MARKS_POLICY: Final = "knell-protection-marks"
"""The admission policy that restricts who changes annotations of protection, and its binding."""
CONFIGURATION: Final = "knell-protection"
"""The webhook configuration."""

NAMESPACES_WEBHOOK: Final = "namespaces.protection.knell.dev"
DEFINITIONS_WEBHOOK: Final = "definitions.protection.knell.dev"
OBJECTS_WEBHOOK: Final = "objects.protection.knell.dev"
"""Names of the webhooks in the configuration; the API server shows them in its messages."""

PATH: Final = "/protection"
UNPROTECT: Final = "unprotect"
"""The verb that allows changing annotations of protection on a resource."""

LABELS: Final = {"app.kubernetes.io/name": "knell", "app.kubernetes.io/part-of": "knell"}
"""Of everything that is applied to a cluster."""
WEBHOOK_LABEL: Final = {"app.kubernetes.io/component": "webhook"}
"""Of the pods that answer reviews, beside the name."""
