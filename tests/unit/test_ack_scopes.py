"""Where ACK's resources may be: settings by namespace, Namespace annotations, and ACK's own maps of roles."""

from typing import Any

import msgspec
import pytest

from service.kubernetes import KubeObject
from service.settings import SettingsError, SourceSettings, load
from service.sources.ack import (
    ADOPTED,
    ADOPTION_POLICY,
    DEFAULT_REGION,
    OWNER_ACCOUNT,
    READ_ONLY,
    TEAM,
    AckScope,
    AckSettings,
)  # fmt: skip
from service.sources.ack_objects import AckObject, recognise_ack_object
from tests.ack import ACCOUNT, NAMESPACE, REGION, arn_of_bucket, bucket, encoded, seen, status
from workers.collectors.ack.role_maps import RoleIdentity, RoleMaps, RoleSelector, Subject, identity_of
from workers.collectors.ack.scopes import account_fault, region_fault
from workers.collectors.ack.subject import AckSubject, Unremovable, require_own, subject_of
from workers.collectors.ack.types import TYPES
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.providers.aws.errors import NoAccess

OTHER = "444455556666"
ROLE = f"arn:aws:iam::{OTHER}:role/ack"


def subject(**changed: Any) -> AckSubject:
    return AckSubject(
        service="s3", resource="buckets.s3.services.k8s.aws", namespace=NAMESPACE, name="logs", uid="u",
        seen=seen("Bucket", arn_of_bucket("logs"), **changed), row=TYPES["s3/Bucket"], identifier="logs",
    )  # fmt: skip


# ---- settings


def test_an_exact_namespace_comes_before_patterns_and_those_in_their_order() -> None:
    team, all_teams, rest = AckScope(regions=("a",)), AckScope(regions=("b",)), AckScope(regions=("c",))
    settings = AckSettings(namespaces={"team-*": all_teams, "*": rest, "team-a": team})
    assert [settings.scope(name) for name in ("team-a", "team-b", "x")] == [team, all_teams, rest]
    assert AckSettings(namespaces={"team-a": team}).scope("team-b") is None
    assert AckSettings().scope("any") == AckScope()


@pytest.mark.invariant(11)
@pytest.mark.parametrize(
    ("regions", "namespace", "region", "held"),
    [
        ((), {}, "us-east-1", False),
        ((), {DEFAULT_REGION: REGION}, REGION, False),
        ((), {DEFAULT_REGION: REGION}, "us-east-1", True),
        (("eu-*",), {DEFAULT_REGION: "us-east-1"}, REGION, False),
        (("eu-*",), {}, "us-east-1", True),
    ],
)
def test_a_region_is_one_of_the_settings_or_the_namespaces(
    regions: tuple[str, ...], namespace: dict[str, str], region: str, held: bool
) -> None:
    assert (region_fault(subject(region=region), AckScope(regions=regions), namespace) is not None) is held


@pytest.mark.invariant(11)
@pytest.mark.parametrize(
    ("accounts", "mapped", "account", "held"),
    [
        ((), "", ACCOUNT, False),
        ((ACCOUNT,), "", ACCOUNT, False),
        ((ACCOUNT,), "", OTHER, True),
        ((), OTHER, OTHER, False),
        ((), OTHER, ACCOUNT, True),
        ((ACCOUNT,), OTHER, OTHER, True),
        ((ACCOUNT, OTHER), OTHER, ACCOUNT, True),
    ],
)
def test_an_account_is_one_of_the_settings_and_the_one_that_the_maps_lead_to(
    accounts: tuple[str, ...], mapped: str, account: str, held: bool
) -> None:
    found = account_fault(subject(account=account), AckScope(accounts=accounts), RoleIdentity(account=mapped))
    assert (found is not None) is held


# ---- maps


def maps(*selectors: dict[str, Any], **config: dict[str, str]) -> RoleMaps:
    found = [
        msgspec.convert({"metadata": {"name": f"s{number}"}, "spec": spec}, RoleSelector)
        for number, spec in enumerate(selectors)
    ]
    return RoleMaps(config.get("accounts", {}), config.get("teams", {}), found)


def of(read: RoleMaps, **changed: Any) -> RoleIdentity:
    known: dict[str, Any] = {
        "service": "s3", "group": "s3.services.k8s.aws", "version": "v1alpha1", "kind": "Bucket",
        "namespace": NAMESPACE, "labels": {}, "annotations": {}, "namespace_labels": {},
    }  # fmt: skip
    return identity_of(read, Subject(**(known | changed)))


def test_without_annotations_the_credentials_are_the_process_own() -> None:
    assert of(maps(accounts={OTHER: ROLE}, teams={"red": ROLE})) == RoleIdentity()


def test_a_namespaces_account_leads_to_the_role_in_the_map() -> None:
    owner = {OWNER_ACCOUNT: OTHER}
    assert of(maps(accounts={OTHER: ROLE}), annotations=owner) == RoleIdentity(f"account/s3/{OTHER}", OTHER, ROLE)
    own = f"{ROLE}-s3"
    assert of(maps(accounts={OTHER: ROLE, f"s3.{OTHER}": own}), annotations=owner).role == own
    assert of(maps(accounts={OTHER: ROLE, f"rds.{OTHER}": own}), annotations=owner).role == ROLE
    # Without a role only credentials of that very account will do.
    assert of(maps(), annotations=owner) == RoleIdentity(account=OTHER)


def test_a_team_comes_before_an_account() -> None:
    both = {TEAM: "red", OWNER_ACCOUNT: ACCOUNT}
    assert of(maps(teams={"red": ROLE}), annotations=both) == RoleIdentity("team/red", OTHER, ROLE)
    with pytest.raises(NoAccess, match="is of team 'red', which"):
        of(maps(), annotations=both)


@pytest.mark.invariant(11)
@pytest.mark.parametrize("role", ["", "arn:aws:iam::1:role/x", f"arn:aws:iam::{OTHER}:user/x", f"{ROLE} x", "role/x"])
def test_a_role_that_is_none_is_refused(role: str) -> None:
    with pytest.raises(NoAccess, match="no role that could be assumed"):
        of(maps(teams={"red": role}), annotations={TEAM: "red"})


@pytest.mark.invariant(11)
def test_the_role_of_an_account_must_be_of_that_account() -> None:
    with pytest.raises(NoAccess, match="is of another account"):
        of(maps(accounts={ACCOUNT: ROLE}), annotations={OWNER_ACCOUNT: ACCOUNT})


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({}, True),
        ({"namespaceSelector": {"names": [NAMESPACE]}}, True),
        ({"namespaceSelector": {"names": ["team-b"]}}, False),
        ({"namespaceSelector": {"labelSelector": {"matchLabels": {"tier": "1"}}}}, True),
        ({"namespaceSelector": {"labelSelector": {"matchLabels": {"tier": "2"}}}}, False),
        ({"namespaceSelector": {"names": [NAMESPACE], "labelSelector": {"matchLabels": {"tier": "2"}}}}, False),
        ({"resourceTypeSelector": [{"group": "rds.services.k8s.aws"}, {"kind": "Bucket"}]}, True),
        ({"resourceTypeSelector": [{"group": "s3.services.k8s.aws", "version": "v1", "kind": "Bucket"}]}, False),
        ({"resourceLabelSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"resourceLabelSelector": {"matchLabels": {"app": "y"}}}, False),
    ],
)
def test_a_selector_selects_by_namespace_type_and_labels(selector: dict[str, Any], chosen: bool) -> None:
    found = of(maps({"arn": ROLE, **selector}), labels={"app": "x"}, namespace_labels={"tier": "1"})
    assert found == (RoleIdentity("selector/s0", OTHER, ROLE) if chosen else RoleIdentity())


def test_a_selector_excludes_the_maps_and_two_that_select_it_are_refused() -> None:
    owner = {OWNER_ACCOUNT: ACCOUNT}
    assert of(maps({"arn": ROLE}, accounts={ACCOUNT: "x"}), annotations=owner).label == "selector/s0"
    with pytest.raises(NoAccess, match="s0, s1 all select it"):
        of(maps({"arn": ROLE}, {"arn": ROLE}))


# ---- what the object means


def facts(
    recognises: str = "", live: dict[str, Any] | None = None, *, going: bool = True, **annotations: str
) -> ObjectFacts:
    resource = "buckets.s3.services.k8s.aws"
    ref = ObjectRef(
        deletion="d", source="buckets", cluster="c", resource=resource, uid="uid-logs", name="logs", namespace=NAMESPACE
    )
    found = None
    if live is not None:
        found = KubeObject(uid="uid-logs", name="logs", deleting=1 if going else 0, raw=msgspec.Raw(encoded(live)))
    return ObjectFacts(
        ref=ref, settings=SourceSettings(resource=resource, collector="ack"), labels={}, annotations=annotations,
        namespace_annotations={}, recognises=recognises, live=found,
    )  # fmt: skip


SEEN = recognise_ack_object(encoded(bucket("logs")))


def test_an_object_that_was_seen_synced_means_what_it_named_then() -> None:
    found = subject_of(facts(SEEN))
    assert (found.identifier, found.row.kind, found.kept_name) == ("logs", "aws.s3-bucket", "aws.s3-bucket:logs")


@pytest.mark.invariant(8)
def test_what_was_never_seen_synced_is_held_whatever_it_says_at_the_end() -> None:
    for live in (None, bucket("logs")):
        with pytest.raises(Unremovable, match="the inventory never saw it synced"):
            subject_of(facts("", live))
    # `knell plan` of an object that lives.
    assert subject_of(facts("", bucket("logs"), going=False)).identifier == "logs"


def changed(**said: Any) -> AckObject:
    return msgspec.structs.replace(msgspec.json.decode(SEEN, type=AckObject), **said)


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("now", "why"),
    [
        (status(arn_of_bucket("other")), "names the arn arn:aws:s3:::other, and arn:aws:s3:::logs when"),
        (status(arn_of_bucket("logs"), account=OTHER), f"names the account {OTHER}"),
        (status(arn_of_bucket("logs"), region="us-east-1"), "names the region us-east-1"),
    ],
)
def test_a_status_that_was_edited_since_it_was_seen_synced_is_held(now: dict[str, Any], why: str) -> None:
    with pytest.raises(Unremovable, match=why):
        subject_of(facts(SEEN, bucket("logs", said=now)))


@pytest.mark.invariant(8)
def test_a_spec_that_names_another_resource_is_held_and_a_lost_status_is_not() -> None:
    other = bucket("logs")
    other["spec"]["name"] = "other"
    with pytest.raises(Unremovable, match=r"spec\.name is 'other', and its ARN"):
        subject_of(facts(SEEN, other))
    assert subject_of(facts(SEEN, bucket("logs", said={}))).identifier == "logs"


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"account": ""}, "has no account or no region"),
        ({"region": ""}, "has no account or no region"),
        ({"partition": "aws-cn"}, "is of partition aws, and its status says aws-cn"),
        ({"arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:logs"}, "is an ARN of another type than aws.s3-bucket"),
        ({"arn": "logs"}, "is no ARN"),
        ({"kind": "Broom"}, "Broom of s3 is not in the table"),
    ],
)
def test_a_status_that_names_no_place_or_another_type_is_held(said: dict[str, Any], why: str) -> None:
    with pytest.raises(Unremovable, match=why):
        subject_of(facts(msgspec.json.encode(changed(**said)).decode()))


def test_the_arn_must_be_of_the_account_and_region_that_the_status_says() -> None:
    for arn in (f"arn:aws:sqs:us-east-1:{ACCOUNT}:q", f"arn:aws:sqs:{REGION}:{OTHER}:q"):
        queue = seen("Queue", arn, status__queueURL=f"https://sqs/{ACCOUNT}/q")
        given = facts(msgspec.json.encode(queue).decode())
        given = msgspec.structs.replace(
            given, ref=msgspec.structs.replace(given.ref, resource="queues.sqs.services.k8s.aws")
        )
        with pytest.raises(Unremovable, match=r"is of (region|account)"):
            subject_of(given)


@pytest.mark.parametrize(
    ("annotations", "held"),
    [
        ({}, False),
        ({ADOPTED: "false", READ_ONLY: "False"}, False),
        ({ADOPTED: "true"}, True),
        ({ADOPTED: "yes"}, True),
        ({READ_ONLY: "true"}, True),
        ({ADOPTION_POLICY: "adopt-or-create"}, True),
        ({ADOPTION_POLICY: ""}, True),
    ],
)
def test_adopted_and_read_only_objects_are_refused(annotations: dict[str, str], held: bool) -> None:
    if not held:
        require_own(annotations)
        return
    with pytest.raises(Unremovable, match="is not removed with it"):
        require_own(annotations)


# ---- the section


def test_a_source_without_mode_observes_and_any_group_of_ack_is_allowed(tmp_path: Any) -> None:
    config = tmp_path / "knell.yaml"
    config.write_text(
        "clusters: {main: {in_cluster: true}}\n"
        "sources:\n"
        "  buckets: {resource: buckets.s3.services.k8s.aws, collector: ack}\n"
        "  brokers: {resource: brokers.mq.services.k8s.aws, collector: ack, mode: finalizer}\n"
        "ack:\n"
        "  services: {s3: {untagged: seen}}\n"
        '  namespaces: {team-a: {accounts: ["111122223333"], regions: ["eu-*"]}}\n'
    )
    found = load(config, {})
    assert [one.mode for one in found.sources.values()] == ["observe", "finalizer"]
    assert found.section(AckSettings).service("s3").untagged == "seen"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("resource: buckets.example.org", "is for *.services.k8s.aws"),
        ("resource: iamroleselectors.services.k8s.aws", "is for *.services.k8s.aws"),
    ],
)
def test_other_resources_are_no_objects_of_ack(tmp_path: Any, text: str, why: str) -> None:
    config = tmp_path / "knell.yaml"
    config.write_text(f"clusters: {{main: {{in_cluster: true}}}}\nsources: {{a: {{{text}, collector: ack}}}}\n")
    with pytest.raises(SettingsError) as refused:
        load(config, {})
    assert why in str(refused.value)


def test_a_service_without_a_source_is_a_typo(tmp_path: Any) -> None:
    config = tmp_path / "knell.yaml"
    config.write_text(
        "clusters: {main: {in_cluster: true}}\n"
        "sources: {buckets: {resource: buckets.s3.services.k8s.aws, collector: ack}}\n"
        "ack: {services: {rds: {untagged: seen}}}\n"
    )
    with pytest.raises(SettingsError, match=r"ack\.services\.rds: is not the service of a source"):
        load(config, {})
