"""Embedded Kubernetes API server: what Knell needs of a cluster, in memory, in a thread of the calling process.
Begin with `embedded_api.EmbeddedApi`, which starts it; a request goes through `server` and `verbs` to one module per
verb, on the `state` that they share with the `controllers`. The same conformance suite runs against it and against the
real kube-apiserver, and the real one decides what is right.

Known differences from the real server
- Objects are data: no schema is validated or pruned, and only the defaults that clients read are filled in.
- A strategic merge patch is treated as a merge patch; server-side apply is refused with 415; managedFields are absent.
- Conversion between versions of a CustomResourceDefinition is always `None`: only the apiVersion changes.
- Names of two CustomResourceDefinitions never conflict; subresources are `status`, `finalize` of a Namespace and
  `token` of a ServiceAccount.
- Propagation `Foreground` works as `Background` does; `Orphan` removes the owner references at once.
- Admission: validating webhooks are asked about deletions only, at a `url`, and their matchConditions count as true:
  they are asked more often. Admission policies and their bindings are stored, not evaluated. No mutating webhooks.
- No quotas, no priority and fairness (no 429), no OpenAPI documents, no aggregated discovery, no tables.
- A new Namespace is empty: no `default` ServiceAccount, no root CA.
- RBAC is evaluated without aggregation, and privilege escalation is not refused.
- Values are kept as they were sent: times are not normalised, and nothing of Pods is filled in.
- Everything takes effect at once. On a real server discovery and permissions follow a change after a moment, a deleted
  Namespace takes seconds, and right after its start watches get 429 "storage is (re)initializing" for a while.
- For an invalid document only the first error is reported.
- Plain http with bearer tokens on 127.0.0.1. kubectl sends no token over plain http, so it cannot be used."""

from standins.kubernetes_api.authorization import AccessRule
from standins.kubernetes_api.embedded_api import EmbeddedApi

__all__ = ["AccessRule", "EmbeddedApi"]
