"""Resources of ACK's objects on AWS in the demo: a queue that must be removed, a bucket that is retained, and a queue
whose object is not deleted. Read from the stand-in's own lists and journal, never from Knell."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from service.sources.ack import CONTROLLER_TAG, NAMESPACE_TAG
from standins.demo.fleet import DemoAckObject, Fleet

if TYPE_CHECKING:
    from standins.aws import AwsJournalEntry
    from standins.aws.builder import AwsBuilder

_SERVICES: Final = ("cloudcontrol", "s3", "sqs")
_READS: Final = ("Get", "List", "Head")
_DELETE: Final = "cloudcontrol.DeleteResource"


class AckResource(msgspec.Struct, frozen=True, kw_only=True):
    """What an object of ACK says of its resource. `id` is the name of a bucket, or the URL of a queue."""

    id: str
    spec: dict[str, str]
    status: dict[str, Any]


class AckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`left` had to be deleted and exists; `missing` had to stay and does not exist; `touched` had to stay and was
    named in a call that changes something; `twice` was requested more than once. `by_cloud_control` are requests of
    Cloud Control that ended with the queue gone. `recorded` is why the bucket stays, in Knell's record of what was kept
    on purpose, `audit` what its audit says of the decision; empty if nothing. Buckets get no tag."""

    queue: str
    bucket: str
    left: list[str]
    missing: list[str]
    touched: list[str]
    twice: list[str]
    by_cloud_control: int
    recorded: str
    audit: str


def is_of_ack(entry: "AwsJournalEntry") -> bool:
    """Whether a call is to one of the services that only ACK's objects have resources of."""
    return entry.action.partition(".")[0] in _SERVICES


class AckResources:
    """State as of the last `refresh`."""

    def __init__(self, fleet: Fleet, namespace: str) -> None:
        self._fleet, self._namespace = fleet, namespace
        self._ids: dict[str, str] = {}
        self._existing: frozenset[str] = frozenset()

    async def add(self, builder: "AwsBuilder", one: DemoAckObject) -> AckResource:
        """Creates the resource of an object, as its controller would have done."""
        from standins.aws.builder import stand_in_errors

        with stand_in_errors():
            made = await (self._add_bucket if one.kind == "Bucket" else self._add_queue)(builder, one.name)
        self._ids[one.name] = made.id
        return made

    async def _add_bucket(self, builder: "AwsBuilder", name: str) -> AckResource:
        s3 = await builder.client("s3")
        await s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": builder.region})
        tags = [{"Key": key, "Value": value} for key, value in self._tags("s3").items()]
        await s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags})
        return AckResource(id=name, spec={"name": name}, status=_status(builder, f"arn:aws:s3:::{name}"))

    async def _add_queue(self, builder: "AwsBuilder", name: str) -> AckResource:
        sqs = await builder.client("sqs")
        url = (await sqs.create_queue(QueueName=name, tags=self._tags("sqs")))["QueueUrl"]
        said = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        status = _status(builder, said["Attributes"]["QueueArn"])
        return AckResource(id=url, spec={"queueName": name}, status={**status, "queueURL": url})

    def _tags(self, service: str) -> dict[str, str]:
        return {NAMESPACE_TAG: self._namespace, CONTROLLER_TAG: f"{service}-v1.5.0"}

    async def refresh(self, builder: "AwsBuilder") -> None:
        """Raises LocalAwsFailed where the stand-in does not answer."""
        from standins.aws.builder import stand_in_errors

        with stand_in_errors():
            s3, sqs = await builder.client("s3"), await builder.client("sqs")
            buckets = [one["Name"] for one in (await s3.list_buckets())["Buckets"]]
            queues = (await sqs.list_queues()).get("QueueUrls") or []
            self._existing = frozenset([*buckets, *queues])

    def exists(self, one: DemoAckObject) -> bool:
        return self._ids[one.name] in self._existing

    @property
    def finished(self) -> bool:
        return not any(self.exists(one) for one in self._fleet.ack if one.outcome == "removed")

    def summary(self, entries: Sequence["AwsJournalEntry"], recorded: str, audit: str) -> AckSummary:
        queue, names = self._ids[self._fleet.queue.name], {id_: name for name, id_ in self._ids.items()}
        to_keep = [one for one in self._fleet.ack if one.outcome != "removed"]
        calls = [one for one in entries if one.what == "request" and not one.setup and is_of_ack(one)]
        changes = [one for one in calls if not one.action.partition(".")[2].startswith(_READS)]
        touched = {id_ for one in changes for id_ in one.ids} & {self._ids[one.name] for one in to_keep}
        deleted = Counter(id_ for one in calls if one.action == _DELETE and not one.code for id_ in one.ids)
        return AckSummary(
            queue=self._fleet.queue.name,
            bucket=self._fleet.bucket.name,
            left=sorted(one.name for one in self._fleet.ack if one.outcome == "removed" and self.exists(one)),
            missing=sorted(one.name for one in to_keep if not self.exists(one)),
            touched=sorted(names[id_] for id_ in touched),
            twice=sorted(names[id_] for id_, times in deleted.items() if times > 1 and id_ in names),
            by_cloud_control=sum(one.what == "ended" and not one.code and queue in one.ids for one in entries),
            recorded=recorded,
            audit=audit,
        )


def _status(builder: "AwsBuilder", arn: str) -> dict[str, Any]:
    """As a controller writes it."""
    resource = {"arn": arn, "ownerAccountID": builder.account, "region": builder.region, "partition": "aws"}
    synced = {"type": "ACK.ResourceSynced", "status": "True"}
    return {"ackResourceMetadata": resource, "conditions": [synced]}
