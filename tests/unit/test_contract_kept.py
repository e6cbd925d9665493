"""The value of the tag that keeping leaves: it fits what providers allow, always ends with the whole uid, and is
recognised by the decision that wrote it."""

import re

import pytest

from service.contract.kept import LONGEST_VALUE, KeepDecision, decode_keep_decision, retained_value

UID = "6f1c0f8e-7a52-4be0-9d5d-0c3f5d6c2f11"


@pytest.mark.parametrize("namespace", ["", "tenant", "n" * 63])
@pytest.mark.parametrize("name", ["prod", "a" * 253])
def test_it_names_the_object_and_fits(namespace: str, name: str) -> None:
    resource = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
    value = retained_value(UID, resource, namespace, name, UID)
    assert len(value) <= LONGEST_VALUE
    assert value.startswith(f"{UID}/{resource}/{namespace}/{name[:4]}")
    assert value.endswith(f"/{UID}")
    if name == "prod":
        assert value == f"{UID}/{resource}/{namespace}/prod/{UID}"
    else:
        assert "aaa../" in value


def test_what_providers_do_not_allow_is_an_underscore() -> None:
    value = retained_value("c", "kind", "ns", 'a"b<ü>', "u")
    assert value == "c/kind/ns/a_b___/u"
    assert re.fullmatch(r"[0-9A-Za-z .:/=+_@-]*", value)


@pytest.mark.parametrize(("namespace", "name"), [("tenant", "prod"), ("", "pool-1"), ("n" * 63, "a" * 253)])
def test_a_decision_knows_the_value_that_it_wrote_and_no_other(namespace: str, name: str) -> None:
    kind = "awsclusters.infrastructure.cluster.x-k8s.io"
    whole = f"{namespace}/{name}" if namespace else name
    decision = KeepDecision(
        v=1, place="aws/1/r", name="n", object=f"{kind} {whole}", uid=UID, source="s", why="w", at=1
    )  # fmt: skip
    assert decision.namespace == namespace
    assert decision.wrote_tag(retained_value(UID, kind, namespace, name, UID))
    for other in (
        "", UID, f"/{UID}", retained_value(UID, kind, namespace, name, "another"),
        retained_value(UID, kind, "elsewhere", name, UID), retained_value(UID, "others", namespace, name, UID),
        retained_value(UID, kind, namespace, "b", UID),
    ):  # fmt: skip
        assert not decision.wrote_tag(other)


def test_a_record_from_before_identities_were_recorded_is_reached_as_the_process_itself() -> None:
    raw = b'{"v":1,"place":"aws/1/r","name":"n","object":"k ns/n","uid":"u","source":"s","why":"w","at":1}'
    assert decode_keep_decision(raw).identity == ""
