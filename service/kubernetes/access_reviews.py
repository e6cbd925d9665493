"""Access reviews: whether the credentials of a client allow a request. They change nothing; an API server that does not
answer them raises NotServed or Forbidden."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from service.kubernetes.client import KubernetesClient

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessReviewStatus = _AccessReviewStatus()


async def is_allowed(cluster: KubernetesClient, attributes: Mapping[str, str]) -> bool:
    """`attributes` are resourceAttributes of the review: verb, group, resource, namespace, name."""
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(attributes)},
    }
    answer = await cluster.request("POST", _REVIEWS, body=body)
    return msgspec.json.decode(answer, type=_AccessReview).status.allowed
