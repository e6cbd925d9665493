"""Objects of ACK for tests, with the fields of upstream's CRDs that Knell reads, and a kind of resource that is not the
product's own."""

from typing import Any, Final

import msgspec

from service.sources.ack import ACK, CONTROLLER_TAG, NAMESPACE_TAG
from service.sources.ack_objects import AckObject
from tests.kube import Crd
from workers.collectors.ack.claim import AckClaim
from workers.providers.aws.model import AwsResource, CallScope

ACCOUNT: Final = "111122223333"
REGION: Final = "eu-west-1"
NAMESPACE: Final = "team-a"
SOURCE: Final = "queues"

VERSIONS: Final = ("v1alpha1",)
_OF_ALL: Final = (
    *(f"status.ackResourceMetadata.{name}" for name in ("arn", "ownerAccountID", "region", "partition")),
    *(f"status.conditions[].{name}" for name in ("type", "status", "lastTransitionTime", "reason", "message")),
)


def ack_crd(service: str, plural: str, kind: str, *texts: str) -> Crd:
    """As upstream ships it, with the fields that Knell reads: `texts` are those of this kind."""
    return Crd(f"{service}.services.k8s.aws", plural, "Namespaced", VERSIONS, kind, (*texts, *_OF_ALL))


QUEUES: Final = ack_crd("sqs", "queues", "Queue", "spec.queueName", "status.queueURL")
BUCKETS: Final = ack_crd("s3", "buckets", "Bucket", "spec.name")
TABLES: Final = ack_crd("dynamodb", "tables", "Table", "spec.tableName")
SELECTORS: Final = Crd("services.k8s.aws", "iamroleselectors", "Cluster", VERSIONS, "IAMRoleSelector")


def arn_of_bucket(name: str) -> str:
    return f"arn:aws:s3:::{name}"


def status(
    arn: str = "", *, account: str = ACCOUNT, region: str = REGION, synced: str = "True", **fields: str
) -> dict[str, Any]:
    """As a controller writes it: what its resource is, and that it is synced."""
    resource = {"ownerAccountID": account, "region": region, "partition": "aws"} | ({"arn": arn} if arn else {})
    conditions = [{"type": "ACK.ResourceSynced", "status": synced}]
    return {"ackResourceMetadata": resource, "conditions": conditions, **fields}


def body(crd: Crd, name: str, spec: dict[str, Any], said: dict[str, Any] | None, **metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = {**crd.body(name, **metadata), "spec": spec}
    return found | ({"status": said} if said is not None else {})


def bucket(name: str = "logs", *, said: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    made = {"namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": "2026-05-01T10:00:00Z", **metadata}
    return body(BUCKETS, name, {"name": name}, status(arn_of_bucket(name)) if said is None else said, **made)


def encoded(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)


def seen(kind: str, arn: str = "", *, account: str = ACCOUNT, region: str = REGION, **fields: str) -> AckObject:
    """What the inventory has of an object; `spec__name` stands for the path spec.name."""
    paths = {name.replace("__", "."): value for name, value in fields.items()}
    return AckObject(kind=kind, arn=arn, account=account, region=region, partition="aws", fields=paths)


def claim(name: str = "logs", **changed: Any) -> AckClaim:
    """Of a bucket."""
    made: dict[str, Any] = {
        "scope": CallScope(source=SOURCE, namespace=NAMESPACE, region=REGION), "account": ACCOUNT, "service": "s3",
        "kind": "Bucket", "name": name, "removes": "aws.s3-bucket", "identifier": name, "arn": arn_of_bucket(name),
    }  # fmt: skip
    return AckClaim(**(made | changed))


def resource(name: str = "logs", kind: str = "aws.s3-bucket", **tags: str) -> AwsResource:
    """With ACK's own tags, unless others are given."""
    own = {NAMESPACE_TAG: NAMESPACE, CONTROLLER_TAG: "s3-v1.10.0"}
    return AwsResource(kind=kind, id=name, tags=tags or own)


__all__ = ["ACK"]
