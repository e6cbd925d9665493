"""`knell doctor` checks AWS: the account by STS, and a read of every service in use; missing permissions are named."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standins.aws.behaviour import AwsFault
from standins.aws.builder import REGION
from tests.capi import AWS_CLUSTERS, STATIC_IDENTITIES
from tests.integration.capi_fixture import CapiFixture
from tests.integration.command_line import CommandResult, environment, invoke

pytestmark = pytest.mark.long

OTHER = "999988887777"
SERVICES = {"AWS EC2", "AWS classic ELB", "AWS ELB", "AWS EKS", "AWS tagging API"}


class DoctorCommand:
    """`knell doctor` with one source of clusters on AWS."""

    def __init__(self, clusters: CapiFixture, folder: Path) -> None:
        self.clusters, self._folder = clusters, folder
        self.aws: dict[str, Any] = {"endpoint": clusters.aws.address, "account": clusters.account}

    async def run(self, *words: str) -> CommandResult:
        clusters = self.clusters
        way = {"kubeconfig": str(clusters.api.kubeconfig(self._folder / "admin")), "context": "local"}
        source = {"resource": AWS_CLUSTERS.resource, "collector": "capa", "namespaces": [clusters.capi.namespace]}
        document = {
            "clusters": {"here": way}, "sources": {"aws": source}, "features": {"ExternalResourceGC": True},
            "aws": self.aws, "watch": {"namespace": clusters.capi.namespace},
        }  # fmt: skip
        path = self._folder / "doctor.yaml"
        path.write_bytes(msgspec.yaml.encode(document))
        variables = environment(clusters.settings.redis)
        return await asyncio.to_thread(invoke, variables, "--config", str(path), "doctor", *words)

    async def found(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Results about AWS, by check and identity."""
        answer = await self.run("--output", "json")
        return {(one["check"], one["node"]): one for one in answer.json["findings"] if one["check"].startswith("AWS")}


@pytest.fixture
def doctor(clusters: CapiFixture, tmp_path: Path) -> DoctorCommand:
    return DoctorCommand(clusters, tmp_path)


OWN = f"{REGION} as this process"


@pytest.fixture(autouse=True)
def _region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)


async def test_without_any_cluster_the_process_credentials_are_checked_in_every_service(doctor: DoctorCommand) -> None:
    found = await doctor.found()
    assert {node for _, node in found} == {OWN}
    assert {check for check, _ in found} == {"AWS identity", *SERVICES}
    assert {one["state"] for one in found.values()} == {"fine"}, found
    account = doctor.clusters.account
    assert f"STS says account {account} (arn:aws:" in found["AWS identity", OWN]["what"]
    assert "as aws.account says" in found["AWS identity", OWN]["what"]
    asked = {one.partition(".")[0] for one in await doctor.clusters.actions()}
    assert asked == {"sts", "ec2", "elb", "elbv2", "eks", "tagging"}


async def test_another_account_than_the_setting_is_wrong_and_ends_the_checks(doctor: DoctorCommand) -> None:
    doctor.aws["account"] = OTHER
    found = await doctor.found()
    assert list(found) == [("AWS identity", OWN)]
    wrong = found["AWS identity", OWN]
    assert wrong["state"] == "wrong"
    assert f"account {doctor.clusters.account}" in wrong["what"]
    assert f"but aws.account is {OTHER}" in wrong["what"]
    assert "KNELL_AWS_ACCOUNT" in wrong["mend"]
    assert (await doctor.run()).code == 1


@pytest.mark.parametrize(
    ("action", "check", "permission"),
    [
        ("ec2.DescribeVpcs", "AWS EC2", "ec2:DescribeVpcs"),
        ("elb.DescribeLoadBalancers", "AWS classic ELB", "elasticloadbalancing:DescribeLoadBalancers"),
        ("elbv2.DescribeTargetGroups", "AWS ELB", "elasticloadbalancing:DescribeTargetGroups"),
        ("eks.DescribeCluster", "AWS EKS", "eks:DescribeCluster"),
    ],
)
async def test_a_permission_that_is_missing_is_named_as_iam_names_it(
    doctor: DoctorCommand, action: str, check: str, permission: str
) -> None:
    await doctor.clusters.aws.set_faults(AwsFault(what="deny", action=action, account=doctor.clusters.account))
    found = await doctor.found()
    assert {name for (name, _), one in found.items() if one["state"] != "fine"} == {check}
    wrong = found[check, OWN]
    assert (wrong["state"], f"may not {permission} (" in wrong["what"]) == ("wrong", True)
    assert "knell role --aws-policy" in wrong["mend"]


@pytest.mark.parametrize(("finding", "state"), [("auto", "warning"), ("tagging", "wrong"), ("describe", None)])
async def test_a_missing_tagging_permission_is_reported_if_the_api_is_used(
    doctor: DoctorCommand, finding: str, state: str | None
) -> None:
    doctor.aws["finding"] = finding
    await doctor.clusters.aws.set_faults(
        AwsFault(what="deny", action="tagging.GetResources", account=doctor.clusters.account)
    )
    found = (await doctor.found()).get(("AWS tagging API", OWN))
    assert (found and found["state"]) == state
    assert found is None or "tag:GetResources" in found["what"]


async def test_only_permissions_that_the_tasks_need_are_checked(doctor: DoctorCommand) -> None:
    doctor.aws |= {"tasks": ["volume"], "mark_retained": False}
    assert {check for check, _ in await doctor.found()} == {
        "AWS identity", "AWS EC2", "AWS EKS", "AWS tagging API",
    }  # fmt: skip


async def test_each_identity_and_region_of_a_cluster_is_checked_once(doctor: DoctorCommand) -> None:
    clusters, name = doctor.clusters, "tenant"
    secrets = doctor.aws["identity_namespace"] = clusters.api.namespace()
    keys = {"AccessKeyID": f"AKIA{OTHER}", "SecretAccessKey": "static"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}
    clusters.api.kube.create(f"/api/v1/namespaces/{secrets}/secrets", {"metadata": {"name": name}, "data": encoded})
    clusters.capi.identity(STATIC_IDENTITIES, name, {"secretRef": name, "allowedNamespaces": {}})
    static = {"kind": STATIC_IDENTITIES.kind, "name": name}
    clusters.capi.unmanaged("a", region=REGION)
    clusters.capi.unmanaged("b", region=REGION)
    clusters.capi.unmanaged("c", region="us-west-2")
    clusters.capi.unmanaged("d", region=REGION, identity=static)
    clusters.capi.unmanaged("e", region=REGION, identity={**static, "name": "nobody"})
    await clusters.aws.set_faults(AwsFault(what="deny", action="ec2.DescribeVpcs", account=OTHER))
    found = await doctor.found()
    tenant, nobody = (f"{REGION} as {STATIC_IDENTITIES.kind}/{one}" for one in (name, "nobody"))
    assert {node for _, node in found} == {OWN, "us-west-2 as this process", tenant, nobody}
    # aws.account applies to the process's own credentials.
    assert f"account {OTHER}" in found["AWS identity", tenant]["what"]
    assert (found["AWS identity", tenant]["state"], found["AWS EC2", tenant]["state"]) == ("fine", "wrong")
    assert "ec2:DescribeVpcs" in found["AWS EC2", tenant]["what"]
    assert found["AWS EC2", OWN]["state"] == "fine"
    assert "create it, or correct spec.identityRef" in found["AWS identity", nobody]["what"]


async def test_the_error_of_a_process_without_credentials_says_how_to_get_some(
    doctor: DoctorCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    found = await doctor.found()
    assert found["AWS identity", OWN]["state"] == "wrong"
    assert "IRSA" in found["AWS identity", OWN]["mend"]


async def test_what_is_wrong_stands_first_and_what_is_fine_in_one_line(doctor: DoctorCommand) -> None:
    await doctor.clusters.aws.set_faults(
        AwsFault(what="deny", action="eks.DescribeCluster", account=doctor.clusters.account)
    )
    answer = await doctor.run()
    first, mend, *_, fine = answer.out.strip().splitlines()
    assert answer.code == 1
    assert first.startswith(f"wrong: AWS EKS ({OWN}): ")
    assert mend.startswith("    to mend it: ")
    assert fine.startswith("fine: reachable, version, ")
    assert fine.endswith("AWS tagging API (--all lists them)")
    states = [line.partition(":")[0] for line in answer.out.splitlines() if not line.startswith("    ")]
    assert states.count("fine") == 1
    everything = await doctor.run("--all")
    assert f"fine: AWS EC2 ({OWN}): it answers ec2:DescribeVpcs, ec2:DescribeInstances, " in everything.out
    assert "lists them" not in everything.out
    whole = (await doctor.run("--output", "json")).json["findings"]
    order = ["wrong", "warning", "unknown", "fine"]
    assert [one["state"] for one in whole] == sorted((one["state"] for one in whole), key=order.index)
