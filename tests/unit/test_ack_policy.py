"""Deletion policy of ACK's objects: the whole table of level, prefix and value, and the controller's own default, which
stands in for that of the settings."""

import itertools
from typing import Any

import msgspec
import pytest

from service.policy.decisions import DefaultPolicy
from service.policy.deletion_policy import decide_deletion_policy, needs_default
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.settings import PolicySettings, Settings, SourceSettings
from service.sources.ack import ACK, SOURCE, AckSettings
from service.sources.ack_controller import controllers, read_controller_policy
from service.sources.capa import CAPA

BUCKETS = SourceSettings(resource="buckets.s3.services.k8s.aws", collector=ACK, mode="observe")
DATABASES = SourceSettings(resource="dbinstances.rds.services.k8s.aws", collector=ACK, mode="observe")
CLUSTERS = SourceSettings(resource="dbclusters.rds.services.k8s.aws", collector=ACK, mode="observe")
SUBNET_GROUPS = SourceSettings(resource="dbsubnetgroups.rds.services.k8s.aws", collector=ACK, mode="observe")
PLAIN, PREFIXED = "services.k8s.aws/deletion-policy", "s3.services.k8s.aws/deletion-policy"
DELETES, RETAINS = DefaultPolicy("delete", "the controller says so"), DefaultPolicy("retain", "the controller says so")
WORDS = (None, "delete", "retain", "typo")


def decide(
    own: dict[str, str], namespace: dict[str, str], policy: PolicySettings, default: DefaultPolicy | None,
    source: SourceSettings = BUCKETS,
) -> Any:  # fmt: skip
    service = source.resource.split(".")[1]
    return decide_deletion_policy(own, namespace, policy, service, source, default=default)


@pytest.mark.parametrize("setting", [None, "delete", "retain"])
@pytest.mark.parametrize("default", [None, DELETES, RETAINS, DefaultPolicy("", "there is no controller")])
def test_the_first_level_and_rank_that_says_something_decides(setting: Any, default: DefaultPolicy | None) -> None:
    policy = PolicySettings(services={} if setting is None else {"s3": setting})
    for words in itertools.product(WORDS, repeat=4):
        marks = dict(zip(((0, PREFIXED), (0, PLAIN), (1, PREFIXED), (1, PLAIN)), words, strict=True))
        own, namespace = (
            {name: word for (at, name), word in marks.items() if at == level and word} for level in (0, 1)
        )
        found = decide(own, namespace, policy, default).kind
        first = next((word for word in words if word is not None), None)
        word = first or setting or (default.word if default is not None else "") or "typo"
        assert found == ("hold" if word == "typo" else word), (words, setting, default)


def test_without_setting_and_controller_it_is_held_and_the_reason_says_what_to_do() -> None:
    found = decide({}, {}, PolicySettings(), DefaultPolicy("", "there is no controller of ACK for s3"))
    assert found.kind == "hold"
    assert "there is no controller of ACK for s3" in found.reason
    assert "set policy.services.s3 to delete or retain" in found.reason


@pytest.mark.invariant(7)
def test_the_default_of_the_settings_is_not_that_of_this_source() -> None:
    for word in ("delete", "retain"):
        assert decide({}, {}, PolicySettings(deletion_policy=word), None).kind == "hold"
    clusters = SourceSettings(resource="awsclusters.infrastructure.cluster.x-k8s.io", collector=CAPA)
    assert decide_deletion_policy({}, {}, PolicySettings(), "", clusters).kind == "delete"


def test_the_default_is_read_only_where_the_settings_decide_nothing() -> None:
    assert needs_default(PolicySettings(), "s3", BUCKETS)
    assert not needs_default(PolicySettings(services={"S3": "retain"}), "s3", BUCKETS)
    assert not needs_default(PolicySettings(), "s3", msgspec.structs.replace(BUCKETS, deletion_policy="delete"))
    assert not needs_default(PolicySettings(), "", SourceSettings(resource="widgets.knell.test", collector="none"))


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("family", ["services.k8s.aws", "knell.dev"])
@pytest.mark.parametrize("service", [True, False])
@pytest.mark.parametrize(
    ("source", "allowed"), [(DATABASES, True), (CLUSTERS, True), (SUBNET_GROUPS, False), (BUCKETS, False)]
)
def test_a_snapshot_is_for_databases_and_holds_everything_else(
    source: SourceSettings, allowed: bool, service: bool, family: str, level: int
) -> None:
    prefix = f"{source.resource.split('.')[1]}." if service else ""
    levels: list[dict[str, str]] = [{}, {}]
    levels[level] = {f"{prefix}{family}/deletion-policy": "Snapshot"}
    found = decide(levels[0], levels[1], PolicySettings(), DELETES, source)
    assert (found.kind, found.snapshot) == (("delete", True) if allowed else ("hold", False))
    assert allowed or "'Snapshot'; allowed: delete, retain" in found.reason


def test_a_dry_run_still_knows_of_the_snapshot() -> None:
    known = PolicyInput(
        source=msgspec.structs.replace(DATABASES, dry_run=True), policy=PolicySettings(), labels={},
        annotations={PLAIN: "snapshot"}, namespace={}, default=DELETES,
    )  # fmt: skip
    found = evaluate_policy(known)
    assert (found.kind, found.snapshot) == ("dry-run", True)


# ---- the controller


def deployment(
    *args: str, name: str = "ack-s3", image: str = "public.ecr.aws/aws-controllers-k8s/s3-controller:1.0.9",
    env: list[dict[str, Any]] | None = None, labels: dict[str, str] | None = None,
) -> bytes:  # fmt: skip
    container = {"name": "controller", "image": image, "command": ["./bin/controller"], "args": list(args), "env": env}
    metadata = {"name": name, "labels": labels or {}}
    return msgspec.json.encode({"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}})


def from_env(value: Any) -> list[dict[str, Any]]:
    return [{"name": "OTHER", "value": "x"}, {"name": "DELETION_POLICY", **value}]


FLAG = ("--deletion-policy", "$(DELETION_POLICY)")


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (deployment("--deletion-policy", "retain"), "retain"),
        (deployment("--deletion-policy=delete"), "delete"),
        # ACK's own default.
        (deployment("--aws-region", "eu-west-1"), "delete"),
        (deployment("--deletion-policy", "delete", "--deletion-policy=retain"), "retain"),
        (deployment(*FLAG, env=from_env({"value": "retain"})), "retain"),
        (deployment("--deletion-policy=$(DELETION_POLICY)", env=from_env({"value": "delete"})), "delete"),
        # What the Deployment does not show, or ACK does not know.
        (deployment(*FLAG, env=from_env({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}})), ""),
        (deployment(*FLAG), ""),
        (deployment(*FLAG, env=from_env({})), ""),
        (deployment("--deletion-policy", "$$(DELETION_POLICY)", env=from_env({"value": "retain"})), ""),
        (deployment("--deletion-policy=orphan"), ""),
        (deployment("--deletion-policy"), ""),
        # A mirror, a digest, and a chart with an image of another name.
        (deployment("--deletion-policy=retain", image="mirror.local:5000/s3-controller@sha256:abc"), "retain"),
        (
            deployment("--deletion-policy=retain", image="own", labels={"app.kubernetes.io/name": "s3-chart"}),
            "retain",
        ),
    ],
)  # fmt: skip
def test_a_controllers_policy_is_read_from_its_arguments_and_environment(found: bytes, word: str) -> None:
    (one,) = controllers([found], "s3")
    assert (one.word or "") == word


@pytest.mark.parametrize("image", ["x/s3control-controller:1", "x/s3-controller-mirror:1", "x/rds-controller:1", ""])
def test_other_deployments_are_no_controller_of_the_service(image: str) -> None:
    assert controllers([deployment("--deletion-policy=retain", image=image), b"{}"], "s3") == []


@pytest.mark.invariant(7)
def test_a_deployment_that_cannot_be_read_may_be_the_controller() -> None:
    (one,) = controllers([b"["], "s3")
    assert one.word is None


class Listed:
    def __init__(self, *found: bytes) -> None:
        self._found = found

    async def get(self, resource: str, namespace: str, name: str) -> bytes | None:
        raise AssertionError(f"{resource} {namespace}/{name} is not read")

    async def list(self, resource: str, namespace: str) -> list[bytes]:
        assert (resource, namespace) == ("deployments.apps", "ack-system")
        return list(self._found)


@pytest.mark.parametrize(
    ("found", "word", "reason"),
    [
        ([deployment("--deletion-policy=retain")], "retain", "of ACK's Deployment ack-system/ack-s3 says retain"),
        ([], "", "there is no controller of ACK for s3 in namespace ack-system"),
        ([deployment(), deployment("--deletion-policy=retain", name="b")], "", "disagree: ack-s3 (delete) and b"),
        ([deployment(), deployment(*FLAG, name="b")], "", "ack-system/b: --deletion-policy is '$(DELETION_POLICY)'"),
    ],
)
async def test_the_default_is_that_of_all_controllers_of_the_service(
    found: list[bytes], word: str, reason: str
) -> None:
    said = await read_controller_policy(Listed(*found), "ack-system", "s3")
    assert (said.word, reason in said.reason) == (word, True)


async def test_the_namespace_of_the_controllers_is_a_setting() -> None:
    assert SOURCE.default_policy is not None
    settings = Settings(sections={"ack": AckSettings(controller_namespace="ack-system")})
    said = await SOURCE.default_policy(Listed(deployment()), settings, "buckets.s3.services.k8s.aws")
    assert said.word == "delete"
