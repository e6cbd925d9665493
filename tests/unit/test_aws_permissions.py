"""The shipped IAM policy allows exactly what the code can call, and is merged from those of all sources."""

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from service.contract.kept import RETAINED_TAG
from service.settings import Settings, SourceSettings
from service.sources.capa import DEFAULT_TASKS, TASKS, AwsSettings
from service.sources.declaration import Source
from service.sources.registry import SOURCES, register
from workers.collectors.ack.handler_actions import HANDLER_ACTIONS
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.permissions import policy
from workers.permissions import as_text, aws_policy, policy_of_collector
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.kinds import IDENTIFIER_KINDS, KINDS
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.rds_instances import RDS_INSTANCE
from workers.providers.aws.kinds.s3_buckets import S3_BUCKET
from workers.providers.aws.permissions import action_of, actions_of, policy_document
from workers.providers.aws.services import SERVICES, is_read, service_of

ROOT = Path(__file__).parents[2]
SHIPPED = {"capa": "iam-policy.json", "ack": "iam-policy-ack.json"}
COLLECTORS = [ROOT.joinpath(*source.components.split(".")).parent for source in SOURCES if source.aws_policy]
"""Folders of the collectors of all sources with resources on AWS."""
CODE = (ROOT / "workers" / "providers" / "aws", *COLLECTORS)

# Roles to assume are allowed by their owners, where an identity names one.
ELSEWHERE = {"sts:AssumeRole"}


def allowed(collector: str = "") -> set[str]:
    """By the policy of one collector, or of all."""
    policy = policy_of_collector(collector) if collector else aws_policy()
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def handled() -> set[str]:
    """What Cloud Control calls in our name, so that no code of ours does."""
    return {action for row in HANDLER_ACTIONS.values() for action in (*row.reads, *row.deletes)}


def called() -> set[str]:
    """Every operation in the code, as a policy names it."""
    found, names = set[str](), "|".join(service.name for service in SERVICES)
    for file in (file for folder in CODE for file in folder.rglob("*.py")):
        text = file.read_text()
        named = re.findall(rf'"({names})",\s+"([a-z]+_[a-z_]+)"', text)
        named += [("ec2", one) for one in re.findall(r'Ec2Reader\(\s*"([a-z_]+)"', text)]
        named += [("ec2", one) for one in re.findall(r'matching\(\s*\w+(?:\.\w+)?, "([a-z_]+)"', text)]
        named += [("ec2", one) for one in re.findall(r'"(revoke_security_group_\w+)"', text)]
        named += [("resourcegroupstaggingapi", one) for one in re.findall(r'TAGGING, "([a-z_]+)"', text)]
        named += [("iam", one) for one in re.findall(r'iam_list\(\s*attempt\.client, "([a-z_]+)"', text)]
        named += [("rds", one) for one in re.findall(r'(?:delete_call|read_snapshot)="([a-z_]+)"', text)]
        for service, operation in re.findall(rf'ElbReader\(\s*service="({names})", operation="([a-z_]+)"', text):
            named += [(service, operation), (service, "describe_tags")]
        found |= {action for one in named for action in all_actions(operation_names(*one).limited)}
    return found | tagging(*KINDS, *IDENTIFIER_KINDS)


def all_actions(operation: str) -> tuple[str, ...]:
    service, name = service_of(operation)
    return service.actions(name)


def tagging(*kinds: AwsKind) -> set[str]:
    """Tags are written and removed as the kinds and the rows of the services say."""
    calls = [(kind.tag_service, kind.tagging) for kind in kinds]
    operations = [(service, one) for service, tags in calls if tags is not None for one in (tags.add, tags.remove)]
    return {operation_names(*one).action for one in operations}


def of_others() -> set[str]:
    """Actions for the kinds of the provider that are no cluster's, and for those that collectors add to it."""
    others = [kind for kind in (*KINDS, *IDENTIFIER_KINDS) if kind.name not in CAPA_KINDS]
    return {one.action for kind in others for one in actions_of(kind)} | tagging(*others)


def is_read_action(action: str) -> bool:
    services = [service for service in SERVICES if service.iam == action.partition(":")[0]]
    return any(is_read(service.operation(action.partition(":")[2])) for service in services)


@pytest.mark.parametrize("collector", SHIPPED)
def test_the_shipped_policies_are_those_that_the_kinds_make(collector: str) -> None:
    assert (ROOT / "deploy" / "aws" / SHIPPED[collector]).read_text() == as_text(policy_of_collector(collector))


def test_every_collector_on_aws_has_a_shipped_policy() -> None:
    assert set(SHIPPED) == {source.name for source in SOURCES if source.aws_policy}


def test_the_policy_of_one_collector_allows_no_change_that_only_another_makes() -> None:
    changes = {name: {action for action in allowed(name) if not is_read_action(action)} for name in SHIPPED}
    assert "eks:DeleteCluster" in changes["ack"] - changes["capa"]
    assert "ec2:RevokeSecurityGroupIngress" in changes["capa"] - changes["ack"]


def test_everything_that_is_called_is_allowed_and_nothing_else_is() -> None:
    assert len(called()) > 25
    assert called() - ELSEWHERE <= allowed() | of_others()
    assert allowed() - handled() <= called()


def actions(**settings: Any) -> set[str]:
    """Changes that a policy for these settings allows, without those that tag retained resources."""
    statements = policy(AwsSettings(**settings, mark_retained=False))["Statement"]
    return {action for one in statements if one["Sid"] != "Reads" for action in one["Action"]}


@pytest.mark.invariant(11)
def test_a_policy_for_settings_allows_the_allowed_tasks_and_what_is_switched_on() -> None:
    usual = actions()
    assert "elasticloadbalancing:DeleteLoadBalancer" in usual
    assert usual.isdisjoint({"ec2:DeleteVolume", "ec2:CreateSnapshot", "ec2:CreateTags", "ec2:ReleaseAddress"})
    assert "elasticloadbalancing:ModifyLoadBalancerAttributes" not in usual
    assert actions(allowed_tasks=(*DEFAULT_TASKS, "volume")) == usual | {"ec2:DeleteVolume"}
    saved = actions(tasks=("volume",), snapshot_first=True)
    assert saved == {"ec2:DeleteVolume", "ec2:CreateSnapshot", "ec2:CreateTags"}
    lifted = actions(lift_deletion_protection=True)
    assert lifted - usual == {"elasticloadbalancing:ModifyLoadBalancerAttributes"}
    # The Load Balancer Controller creates load balancers, target groups and security groups as well.
    assert usual - actions(tasks=("aws-load-balancer-controller",)) == set()


def test_reads_of_what_is_not_allowed_are_not_in_it_either() -> None:
    unmarked, marked = (
        {one["Sid"]: one for one in policy(AwsSettings(mark_retained=mark))["Statement"]} for mark in (False, True)
    )
    reads = set(unmarked["Reads"]["Action"])
    assert {"eks:DescribeCluster", "ec2:DescribeInstances", "tag:GetResources"} < reads
    assert "ec2:DescribeVolumes" not in reads
    assert "SettingMarkRetained" not in unmarked
    # Retained resources must be found to be tagged, whatever the tasks are.
    assert reads | {"ec2:DescribeVolumes"} <= set(marked["Reads"]["Action"])
    assert "SettingMarkRetained" in marked


def test_with_retained_tags_the_kinds_that_only_others_remove_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`knell kept` looks for the tag among all kinds of the provider."""
    peering = "ec2.DescribeVpcPeeringConnections"
    other = msgspec.structs.replace(KINDS[0], name="aws.other", service="ec2", read_operations=(peering,))
    monkeypatch.setattr("workers.providers.aws.permissions.KINDS", (*KINDS, other))
    marked = policy(AwsSettings())["Statement"]
    assert action_of(peering) in marked[0]["Action"]
    assert action_of(peering) not in policy(AwsSettings(mark_retained=False))["Statement"][0]["Action"]
    of_another = policy_document(set(), {}, snapshots=False, marks_retained=True)
    assert {action_of(peering), "ec2:DescribeVolumes"} <= set(of_another["Statement"][0]["Action"])


def test_with_retained_tags_the_kinds_that_a_collector_adds_are_read_and_tagged_each_by_its_own_calls() -> None:
    def granted(*kinds: AwsKind) -> set[str]:
        document = policy_document(set(), {}, snapshots=False, marks_retained=True, kinds=kinds)
        return {action for statement in document["Statement"] for action in statement["Action"]}

    added = granted(*IDENTIFIER_KINDS) - granted()
    assert {"iam:TagRole", "iam:TagPolicy", "rds:AddTagsToResource", "kms:TagResource", "logs:UntagResource"} < added
    assert {"s3:ListAllMyBuckets", "s3:ListBucketVersions", "iam:ListEntitiesForPolicy"} < added
    # The tags of a bucket can only be replaced as a whole.
    assert not [one for one in added if one.startswith("s3:") and "Tag" in one and one != "s3:GetBucketTagging"]
    assert not [one for one in added if "Delete" in one or "Detach" in one]


def test_an_operation_that_iam_names_otherwise_is_allowed_by_its_names_there() -> None:
    emptying = {one.action for one in actions_of(S3_BUCKET) if one.setting == "empty_buckets"}
    assert emptying == {"s3:DeleteObject", "s3:DeleteObjectVersion", "s3:AbortMultipartUpload"}
    assert action_of("s3.DeleteObjects") == "s3:DeleteObjectVersion"
    assert {one.action for one in actions_of(RDS_INSTANCE) if not one.read} == {
        "rds:DeleteDBInstance", "rds:CreateDBSnapshot", "rds:ModifyDBInstance",
    }  # fmt: skip


def test_the_code_of_all_sources_with_resources_on_aws_is_looked_through() -> None:
    assert ROOT / "workers" / "collectors" / "capa" in COLLECTORS
    assert all(any(folder.rglob("*.py")) for folder in COLLECTORS)


def test_everything_switched_on_is_the_shipped_policy() -> None:
    everything = AwsSettings(allowed_tasks=TASKS, snapshot_first=True, lift_deletion_protection=True)
    assert policy(everything) == policy()


@pytest.mark.parametrize("collector", SHIPPED)
def test_it_names_no_account_no_partition_and_no_wildcard_of_actions(collector: str) -> None:
    text = as_text(policy_of_collector(collector))
    assert "arn:" not in text
    assert not re.search(r"\d{12}", text)
    assert all("*" not in action for action in allowed(collector))
    sids = [statement["Sid"] for statement in json.loads(text)["Statement"]]
    assert len(set(sids)) == len(sids)
    assert all(re.fullmatch(r"[A-Za-z0-9]+", sid) for sid in sids)


def test_reads_are_one_statement_and_no_tag_is_changed_but_ours_except_on_new_snapshots() -> None:
    statements = {statement["Sid"]: statement for statement in policy_of_collector("capa")["Statement"]}
    reads = {action for one in statements.values() for action in one["Action"] if is_read_action(action)}
    assert set(statements["Reads"]["Action"]) == reads
    tags = {one["Sid"]: one for one in statements.values() if any("Tags" in action for action in one["Action"])}
    assert tags.keys() - {"Reads"} == {"SettingSnapshotFirstTags", "SettingMarkRetained"}
    snapshots, marks = tags["SettingSnapshotFirstTags"], tags["SettingMarkRetained"]
    assert snapshots["Action"] == ["ec2:CreateTags"]
    assert snapshots["Condition"] == {"StringEquals": {"ec2:CreateAction": "CreateSnapshot"}}
    assert marks["Action"] == sorted(tagging(*KINDS))
    assert tagging(*KINDS) >= {
        "ec2:CreateTags", "ec2:DeleteTags", "elasticloadbalancing:AddTags", "elasticloadbalancing:RemoveTags",
    }  # fmt: skip
    # The second condition is for ec2:DeleteTags, which removes all tags if a request names none.
    named = {"ForAllValues:StringEquals": {"aws:TagKeys": [RETAINED_TAG]}, "Null": {"aws:TagKeys": "false"}}
    assert marks["Condition"] == named


def policy_of(monkeypatch: pytest.MonkeyPatch, *statements: dict[str, Any]) -> dict[str, Any]:
    """The merged policy of sources that need one statement each."""
    with ExitStack() as stack:
        for number, statement in enumerate(statements):
            module = ModuleType(f"policy_{number}")
            document = {"Version": "2012-10-17", "Statement": [{"Sid": "Change", "Effect": "Allow", **statement}]}
            vars(module)["aws_policy"] = lambda _settings, document=document: document
            monkeypatch.setitem(sys.modules, module.__name__, module)
            stack.enter_context(register(Source(name=f"policy-{number}", aws_policy=module.__name__)))
        sources = {
            f"policy-{number}": SourceSettings(resource=f"x{number}.knell.test", collector=f"policy-{number}")
            for number in range(len(statements))
        }
        return aws_policy(Settings(sources=sources))


def test_statements_of_the_same_name_and_condition_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = {"Condition": {"StringEquals": {"aws:ResourceTag/a": "b"}}}
    made = policy_of(monkeypatch, {"Action": ["ec2:B", "ec2:A"], **tagged}, {"Action": ["ec2:C"], **tagged})
    merged = {"Sid": "Change", "Effect": "Allow", "Action": ["ec2:A", "ec2:B", "ec2:C"], **tagged}
    assert made == {"Version": "2012-10-17", "Statement": [merged]}


@pytest.mark.parametrize("other", [{}, {"Condition": {"StringEquals": {"aws:ResourceTag/a": "c"}}}])
def test_statements_with_different_conditions_are_not_merged(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    tagged = {"Action": ["ec2:A"], "Condition": {"StringEquals": {"aws:ResourceTag/a": "b"}}}
    for pair in ((tagged, {"Action": ["ec2:C"], **other}), ({"Action": ["ec2:C"], **other}, tagged)):
        with pytest.raises(ValueError, match="statements Change with different conditions"):
            policy_of(monkeypatch, *pair)
