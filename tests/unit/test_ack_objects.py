"""What the inventory keeps of an object of ACK, and when: the object lives, and its controller has synced it."""

from typing import Any

import pytest

from service.sources.ack import SOURCE
from service.sources.ack_objects import read_ack_object, recognise_ack_object, stored_ack_object
from service.sources.declaration import NotRecognisedYet, Unrecognisable
from tests.ack import ACCOUNT, NAMESPACE, QUEUES, REGION, arn_of_bucket, body, bucket, encoded, status


def test_an_object_that_is_synced_is_recognised_with_place_and_identifier() -> None:
    found = stored_ack_object(recognise_ack_object(encoded(bucket("logs"))))
    assert (found.kind, found.arn, found.account, found.region, found.partition) == (
        "Bucket", arn_of_bucket("logs"), ACCOUNT, REGION, "aws",
    )  # fmt: skip
    assert found.fields == {"spec.name": "logs"}
    assert found.made == 1777629600000


@pytest.mark.parametrize(
    ("conditions", "synced"),
    [
        ([{"type": "ACK.ResourceSynced", "status": "True"}], True),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "True"}, {"type": "ACK.ResourceSynced", "status": "True"}], True),
        ([{"type": "ACK.ResourceSynced", "status": "False"}], False),
        ([{"type": "Ready", "status": "True"}, {"type": "ACK.ResourceSynced", "status": "Unknown"}], False),
        ([{"type": "Ready", "status": "True"}, {"type": "ACK.Terminal", "status": "True"}], False),
        ([{"type": "ACK.LateInitialized", "status": "True"}], False),
        ([], False),
        (None, False),
    ],
)
def test_only_what_its_controller_reports_as_synced_is_recognised(conditions: Any, synced: bool) -> None:
    said = {**status(arn_of_bucket("logs")), "conditions": conditions}
    document = encoded(bucket("logs", said=said))
    if synced:
        assert recognise_ack_object(document)
        return
    with pytest.raises(NotRecognisedYet):
        recognise_ack_object(document)
    # It says so all the same.
    assert read_ack_object(document).arn == arn_of_bucket("logs")


@pytest.mark.invariant(8)
def test_an_object_that_is_going_is_not_recognised_whatever_its_status_says() -> None:
    with pytest.raises(NotRecognisedYet):
        recognise_ack_object(encoded(bucket("logs", deletionTimestamp="2026-05-01T11:00:00Z")))


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"kind": 1, "metadata": {}}', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_unrecognisable(text: bytes) -> None:
    with pytest.raises(Unrecognisable) as raised:
        recognise_ack_object(text)
    assert not isinstance(raised.value, NotRecognisedYet)


@pytest.mark.invariant(12)
def test_only_identifying_texts_are_kept() -> None:
    spec = {
        "queueName": "q", "policy": "{...}", "masterUserPassword": {"name": "secret"}, "masterUsername": "root",
        "authToken": "hush", "tags": {"name": "x"}, "kmsMasterKeyID": "k-1", "name": "x" * 5000,
    }  # fmt: skip
    said = status("arn:aws:sqs:eu-west-1:111122223333:q", queueURL="https://sqs/111122223333/q")
    found = read_ack_object(encoded(body(QUEUES, "q", spec, said, namespace=NAMESPACE)))
    assert found.fields == {
        "spec.queueName": "q", "spec.kmsMasterKeyID": "k-1", "status.queueURL": "https://sqs/111122223333/q",
    }  # fmt: skip


def test_the_source_observes_by_default() -> None:
    assert SOURCE.modes == ("observe", "finalizer")
