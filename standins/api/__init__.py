"""An embedded Kubernetes API: what Knell needs of a cluster, in memory, in a thread of the process that starts it.
The same conformance suite runs against it and against the real kube-apiserver, and the real one decides what is right.

Known differences from the real server
- Objects are data: no schema is validated or pruned, no defaults are filled in but the few that clients look at.
- A strategic merge patch is treated as a merge patch; server-side apply is refused with 415; managedFields are absent.
- Conversion between versions of a CustomResourceDefinition is always `None`: only the apiVersion changes.
- Names of two CustomResourceDefinitions never conflict; subresources are `status`, `finalize` of a Namespace and
  `token` of a ServiceAccount.
- Propagation `Foreground` works as `Background` does; `Orphan` lets dependents go at once.
- No admission webhooks or policies, no quotas, no priority and fairness (nobody gets a 429), no OpenAPI documents, no
  tables.
- A new Namespace holds nothing: no `default` ServiceAccount, no root CA.
- RBAC is evaluated without aggregation, and granting more than one has oneself is not refused.
- Values are kept as they were sent: times are not brought into one form, and of Pods nothing is filled in.
- Everything happens at once. On a real server discovery and permissions follow a change after a moment, a deleted
  Namespace takes seconds, and right after its start watches get 429 "storage is (re)initializing" for a while.
- An invalid document is told its first fault, not all of them.
- Plain http with bearer tokens on 127.0.0.1. kubectl sends no token over plain http, so it is of no use here.
"""

from standins.api.embedded import EmbeddedApi
from standins.api.permitting import Rule

__all__ = ["EmbeddedApi", "Rule"]
