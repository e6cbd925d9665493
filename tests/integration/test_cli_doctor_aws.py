"""`knell doctor` asks AWS: STS for the account, and every service that is used for a read; what is denied is named."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standins.aws.behaviour import Fault
from standins.aws.world import REGION
from tests.capi import AWS_CLUSTERS, STATIC_IDENTITIES
from tests.integration.clustered import Clustered
from tests.integration.operating import Answer, environment, invoke

OTHER = "999988887777"
SERVICES = {"AWS EC2", "AWS classic ELB", "AWS ELB", "AWS EKS", "AWS tagging API"}


class Doctor:
    """The command with settings of this test: one source of clusters on AWS."""

    def __init__(self, clustered: Clustered, folder: Path) -> None:
        self.clustered, self._folder = clustered, folder
        self.aws: dict[str, Any] = {"endpoint": clustered.aws.address, "account": clustered.account}

    async def run(self, *words: str) -> Answer:
        clustered = self.clustered
        way = {"kubeconfig": str(clustered.api.kubeconfig(self._folder / "admin")), "context": "local"}
        source = {"resource": AWS_CLUSTERS.resource, "collector": "capa", "namespaces": [clustered.capi.namespace]}
        document = {
            "clusters": {"here": way}, "sources": {"aws": source}, "features": {"ExternalResourceGC": True},
            "aws": self.aws, "watch": {"namespace": clustered.capi.namespace},
        }  # fmt: skip
        path = self._folder / "doctor.yaml"
        path.write_bytes(msgspec.yaml.encode(document))
        variables = environment(clustered.settings.redis)
        return await asyncio.to_thread(invoke, variables, "--config", str(path), "doctor", *words)

    async def found(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What is said of AWS, by what was checked and as whom."""
        answer = await self.run("--output", "json")
        return {(one["check"], one["node"]): one for one in answer.json["findings"] if one["check"].startswith("AWS")}


@pytest.fixture
def doctor(clustered: Clustered, tmp_path: Path) -> Doctor:
    return Doctor(clustered, tmp_path)


OWN = f"{REGION} as this process"


@pytest.fixture(autouse=True)
def _region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)


async def test_without_any_cluster_the_own_credentials_are_asked_in_every_service(doctor: Doctor) -> None:
    found = await doctor.found()
    assert {node for _, node in found} == {OWN}
    assert {check for check, _ in found} == {"AWS identity", *SERVICES}
    assert {one["state"] for one in found.values()} == {"fine"}, found
    account = doctor.clustered.account
    assert f"STS says account {account} (arn:aws:" in found["AWS identity", OWN]["what"]
    assert "as aws.account says" in found["AWS identity", OWN]["what"]
    asked = {one.partition(".")[0] for one in await doctor.clustered.actions()}
    assert asked == {"sts", "ec2", "elb", "elbv2", "eks", "tagging"}


async def test_another_account_than_the_setting_says_is_wrong_and_nothing_more_is_asked(doctor: Doctor) -> None:
    doctor.aws["account"] = OTHER
    found = await doctor.found()
    assert list(found) == [("AWS identity", OWN)]
    wrong = found["AWS identity", OWN]
    assert wrong["state"] == "wrong"
    assert f"account {doctor.clustered.account}" in wrong["what"]
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
    doctor: Doctor, action: str, check: str, permission: str
) -> None:
    await doctor.clustered.aws.trouble(Fault(what="deny", action=action, account=doctor.clustered.account))
    found = await doctor.found()
    assert {name for (name, _), one in found.items() if one["state"] != "fine"} == {check}
    wrong = found[check, OWN]
    assert (wrong["state"], f"may not {permission} (" in wrong["what"]) == ("wrong", True)
    assert "knell role --aws-policy" in wrong["mend"]


@pytest.mark.parametrize(("finding", "state"), [("auto", "warning"), ("tagging", "wrong"), ("describe", None)])
async def test_the_tagging_api_is_missed_as_far_as_it_is_used(doctor: Doctor, finding: str, state: str | None) -> None:
    doctor.aws["finding"] = finding
    await doctor.clustered.aws.trouble(
        Fault(what="deny", action="tagging.GetResources", account=doctor.clustered.account)
    )
    found = (await doctor.found()).get(("AWS tagging API", OWN))
    assert (found and found["state"]) == state
    assert found is None or "tag:GetResources" in found["what"]


async def test_only_what_the_tasks_need_is_asked(doctor: Doctor) -> None:
    doctor.aws |= {"tasks": ["volume"], "mark_retained": False}
    assert {check for check, _ in await doctor.found()} == {
        "AWS identity", "AWS EC2", "AWS EKS", "AWS tagging API",
    }  # fmt: skip


async def test_each_identity_and_region_of_a_cluster_is_asked_once(doctor: Doctor) -> None:
    clustered, name = doctor.clustered, "tenant"
    secrets = doctor.aws["identity_namespace"] = clustered.api.namespace()
    keys = {"AccessKeyID": f"AKIA{OTHER}", "SecretAccessKey": "static"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}
    clustered.api.kube.create(f"/api/v1/namespaces/{secrets}/secrets", {"metadata": {"name": name}, "data": encoded})
    clustered.capi.identity(STATIC_IDENTITIES, name, {"secretRef": name, "allowedNamespaces": {}})
    static = {"kind": STATIC_IDENTITIES.kind, "name": name}
    clustered.capi.unmanaged("a", region=REGION)
    clustered.capi.unmanaged("b", region=REGION)
    clustered.capi.unmanaged("c", region="us-west-2")
    clustered.capi.unmanaged("d", region=REGION, identity=static)
    clustered.capi.unmanaged("e", region=REGION, identity={**static, "name": "nobody"})
    await clustered.aws.trouble(Fault(what="deny", action="ec2.DescribeVpcs", account=OTHER))
    found = await doctor.found()
    tenant, nobody = (f"{REGION} as {STATIC_IDENTITIES.kind}/{one}" for one in (name, "nobody"))
    assert {node for _, node in found} == {OWN, "us-west-2 as this process", tenant, nobody}
    # The setting is about the process's own credentials.
    assert f"account {OTHER}" in found["AWS identity", tenant]["what"]
    assert (found["AWS identity", tenant]["state"], found["AWS EC2", tenant]["state"]) == ("fine", "wrong")
    assert "ec2:DescribeVpcs" in found["AWS EC2", tenant]["what"]
    assert found["AWS EC2", OWN]["state"] == "fine"
    assert "create it, or correct spec.identityRef" in found["AWS identity", nobody]["what"]


async def test_a_process_without_credentials_is_told_how_to_get_some(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    found = await doctor.found()
    assert found["AWS identity", OWN]["state"] == "wrong"
    assert "IRSA" in found["AWS identity", OWN]["mend"]


async def test_what_is_wrong_stands_first_and_what_is_fine_in_one_line(doctor: Doctor) -> None:
    await doctor.clustered.aws.trouble(
        Fault(what="deny", action="eks.DescribeCluster", account=doctor.clustered.account)
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
