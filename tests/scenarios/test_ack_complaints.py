"""What users of ACK complain about, and what it leaves behind without a word, through the whole service. ACK itself
does not run: a test plays its part."""

import asyncio
from typing import Any, Final

import pytest

from service.contract.names import FINALIZER
from service.sources.ack import ADOPTED, ADOPTION_POLICY, READ_ONLY
from standins.aws import AwsFault
from standins.aws.tags import pairs
from tests.ack import ack_crd, body
from tests.aws import AwsTestAccount
from tests.aws_identifier_kinds import role
from tests.cloud_control_types import NewByIdentifier, nodegroup_of
from tests.scenarios.ack_kind_scenario import AckKindScenario, AckOf, ack_of
from tests.scenarios.ack_kinds import ACK_KINDS, AckKind, AckResource, Named, own_tags
from tests.scenarios.ack_scenario import SOURCE
from tests.scenarios.own_account import own_account

__all__ = ["ack_of", "own_account"]

pytestmark = pytest.mark.long


def acks(kind: AckKind) -> str:
    """ACK's own finalizer."""
    return f"finalizers.{kind.crd.group}/{kind.crd.kind}"


async def lose_status(ack: AckKindScenario, suffix: str) -> None:
    """As after a restore without status."""
    status = dict.fromkeys((await ack.read(suffix))["status"])
    await asyncio.to_thread(ack.kube.patch, f"{ack.path(suffix)}/status", {"status": status})


@pytest.mark.parametrize("name", ["Key", "Policy", "Queue"])
async def test_a_lost_status_that_ack_takes_for_not_found_leaves_nothing_behind(ack_of: AckOf, name: str) -> None:
    """Without an id in the status ACK does not call AWS, and drops its finalizer."""
    kind = ACK_KINDS[name]
    ack = ack_of(kind)
    await ack.start()
    mine = await ack.made("mine", finalizers=[acks(kind)])
    await lose_status(ack, "mine")
    await ack.delete("mine")
    await ack.patch("mine", finalizers=[])
    await ack.until_removed(mine)
    await ack.until_done()


NODEGROUP: Final = AckKind(
    ack_crd("eks", "nodegroups", "Nodegroup", "spec.name", "spec.clusterName", "spec.clusterRef.from.name"),
    "AWS::EKS::Nodegroup",
    # The resolved name of the cluster is never stored.
    lambda account, id_: Named(
        f"arn:aws:eks:eu-west-1:{account}:nodegroup/{id_}/0ac1", {"name": id_.partition("/")[2]}, {}
    ),
    None,
)  # fmt: skip


async def test_a_dangling_reference_that_ack_takes_for_not_found_leaves_no_nodegroup(ack_of: AckOf) -> None:
    """Nodegroup.clusterRef names a Cluster object that is gone: ACK does not call AWS, and drops its finalizer."""
    ack = ack_of(NODEGROUP)
    await ack.start()
    account = AwsTestAccount(ack.aws, ack.builder, 0)
    async with account.open:
        new = NewByIdentifier(account, await ack.builder.vpc(), own_tags(NODEGROUP, ack.namespace))
        cluster = await ack.builder.eks.create_cluster(
            name=ack.name("cluster"), roleArn=new.arn("iam", "role/eks"),
            resourcesVpcConfig={"subnetIds": list(new.vpc.subnets)},
        )  # fmt: skip
        mine = AckResource(NODEGROUP, ack.builder, await nodegroup_of(new, cluster["cluster"]["name"]))
    reference: dict[str, Any] = {"clusterRef": {"from": {"name": "gone"}}}
    uid = await ack.named("mine", {**mine.named.spec, **reference}, mine.status, finalizers=[acks(NODEGROUP)])
    await ack.recorded(uid, mine.named.arn)
    await ack.delete("mine")
    await ack.patch("mine", finalizers=[])
    await ack.until_removed(mine)
    await ack.until_done()
    described = await ack.builder.eks.describe_cluster(name=ack.name("cluster"))
    assert described["cluster"]["status"] == "ACTIVE"


@pytest.mark.parametrize("mode", ["observe", "finalizer"])
async def test_a_finalizer_dropped_before_the_rds_instance_is_gone_is_no_end_of_the_deletion(
    ack_of: AckOf, mode: str
) -> None:
    """ACK drops its finalizer once AWS has accepted the deletion."""
    kind = ACK_KINDS["DBInstance"]
    ack = ack_of(kind)
    ack.document["sources"][SOURCE]["mode"] = mode
    await ack.aws.behave(database_goes=10_000)
    await ack.start()
    mine = await ack.made("mine", finalizers=[acks(kind)])
    if mode == "finalizer":
        await ack.until_marked("mine")
    await ack.delete("mine")
    rds = await ack.builder.client("rds")
    await rds.delete_db_instance(DBInstanceIdentifier=mine.id, SkipFinalSnapshot=True)
    left = [FINALIZER] if mode == "finalizer" else []
    await ack.patch("mine", finalizers=left)

    async def watched() -> bool:
        return any("deleting" in job.reason for job in await ack.every_job())

    await ack.until("it is seen to be deleting", watched)
    assert [view.state for view in await ack.deletions()] == ["running"]
    assert (await ack.read("mine") is None) is (mode == "observe")
    await ack.aws.advance(20_000)
    await ack.until_removed(mine)
    await ack.until_done()
    assert await ack.read("mine") is None


async def test_a_key_whose_not_found_ack_does_not_recognise_is_proven_gone(ack_of: AckOf) -> None:
    """KMS says NotFoundException, and ACK expects NotFound: its object stays for ever, which is ACK's own finalizer."""
    kind = ACK_KINDS["Key"]
    ack = ack_of(kind)
    ack.document["sources"][SOURCE]["mode"] = "finalizer"
    await ack.start()
    missing = AckResource(kind, ack.builder, "11111111-2222-3333-4444-555555555555")
    await ack.seen_with("mine", missing, finalizers=[acks(kind)])
    await ack.until_marked("mine")
    await ack.delete("mine")
    await ack.until_done()

    async def released() -> bool:
        return bool((await ack.read("mine"))["metadata"]["finalizers"] == [acks(kind)])

    await ack.until("only ACK's finalizer is left", released)


@pytest.mark.parametrize("empties", [False, True])
async def test_a_bucket_that_is_not_empty_goes_if_a_setting_allows_it_and_else_says_so(
    ack_of: AckOf, empties: bool
) -> None:
    """ACK never empties a bucket."""
    ack = ack_of(ACK_KINDS["Bucket"])
    ack.document["aws"]["empty_buckets"] = empties
    await ack.start()
    mine = await ack.made("mine")
    s3 = await ack.builder.client("s3")
    await s3.put_bucket_versioning(Bucket=mine.id, VersioningConfiguration={"Status": "Enabled"})
    for _ in range(2):
        await s3.put_object(Bucket=mine.id, Key="log", Body=b"x")
    await s3.delete_object(Bucket=mine.id, Key="log")
    await s3.create_multipart_upload(Bucket=mine.id, Key="upload")
    await ack.delete("mine")
    if empties:
        await ack.until_removed(mine)
        await ack.until_done()
        return
    await ack.until_job("is not empty", "aws.empty_buckets")
    assert len((await s3.list_object_versions(Bucket=mine.id))["Versions"]) == 2


@pytest.mark.invariant(2)
@pytest.mark.parametrize(
    "annotations", [{ADOPTED: "true"}, {READ_ONLY: "true"}, {ADOPTION_POLICY: "adopt"}], ids=lambda one: next(iter(one))
)
async def test_an_unmanaged_role_that_ack_deletes_like_one_of_its_own_stays(
    ack_of: AckOf, annotations: dict[str, str]
) -> None:
    ack = ack_of(ACK_KINDS["Role"])
    await ack.start()
    mine = await ack.made("mine", annotations=annotations)
    await ack.delete("mine")
    await ack.until_held(f"annotation {next(iter(annotations))} says")
    assert await mine.exists()


@pytest.mark.invariant(2)
@pytest.mark.parametrize("path", ["/aws-service-role/eks.amazonaws.com/", "/service-role/"])
async def test_an_unmanaged_role_of_a_service_stays(ack_of: AckOf, path: str) -> None:
    kind = ACK_KINDS["Role"]
    ack = ack_of(kind)
    await ack.start()
    name = await role(ack.builder, ack.name("mine"), own_tags(kind, ack.namespace), path=path)
    mine = AckResource(kind._replace(named=lambda account, id_: Named(
        f"arn:aws:iam::{account}:role{path}{id_}", {"name": id_}, {}
    )), ack.builder, name)  # fmt: skip
    await ack.seen_with("mine", mine)
    await ack.delete("mine")
    await ack.until_job(path)
    assert await mine.exists()


VPCS: Final = AckKind(
    ack_crd("ec2", "vpcs", "VPC", "status.vpcID"), "AWS::EC2::VPC", lambda _, id_: Named("", {}, {"vpcID": id_}), None
)
SUBNETS: Final = AckKind(
    ack_crd("ec2", "subnets", "Subnet", "status.subnetID"), "AWS::EC2::Subnet",
    lambda account, id_: Named(f"arn:aws:ec2:eu-west-1:{account}:subnet/{id_}", {}, {"subnetID": id_}), None,
)  # fmt: skip
GATEWAYS: Final = AckKind(
    ack_crd("ec2", "internetgateways", "InternetGateway", "status.internetGatewayID"), "AWS::EC2::InternetGateway",
    lambda _, id_: Named("", {}, {"internetGatewayID": id_}), None,
)  # fmt: skip


async def test_leftovers_of_a_deleted_namespace_go_in_whatever_order_they_can(ack_of: AckOf) -> None:
    """`kubectl delete namespace`: the VPC is blocked by its subnet for as long as that is there."""
    ack = ack_of(VPCS)
    for kind in (SUBNETS, GATEWAYS):
        if ack.kube.get(kind.crd.own_path) is None:
            ack.kube.install(kind.crd)
        ack.document["sources"][kind.crd.plural] = {
            **ack.document["sources"][SOURCE], "resource": kind.crd.resource,
        }  # fmt: skip
    await ack.start()
    vpc = await ack.resource("vpc")
    subnets, gateways = list[AckResource](), list[AckResource]()
    ec2 = ack.builder.ec2
    for number in range(2):

        def tagged(what: str, kind: AckKind) -> list[dict[str, Any]]:
            return [{"ResourceType": what, "Tags": pairs(own_tags(kind, ack.namespace))}]

        made = await ec2.create_subnet(
            VpcId=vpc.id, CidrBlock=f"10.1.{number}.0/24", TagSpecifications=tagged("subnet", SUBNETS)
        )
        subnets.append(AckResource(SUBNETS, ack.builder, made["Subnet"]["SubnetId"]))
        made = await ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway", GATEWAYS))
        gateways.append(AckResource(GATEWAYS, ack.builder, made["InternetGateway"]["InternetGatewayId"]))
    await ack.seen_with("vpc", vpc)
    for one in (*subnets, *gateways):
        path = one.kind.crd.path(ack.namespace)
        document = body(one.kind.crd, one.id, {}, None)
        uid = (await asyncio.to_thread(ack.kube.create, path, document))["metadata"]["uid"]
        await asyncio.to_thread(ack.kube.patch, f"{path}/{one.id}/status", {"status": one.status})
        await ack.recorded(uid, one.id, one.kind.crd.plural)
    await asyncio.to_thread(ack.kube.delete, f"/api/v1/namespaces/{ack.namespace}")
    await ack.until_removed(vpc, *subnets, *gateways)
    await ack.until_done(5)


async def test_throttling_of_the_service_behind_cloud_control_ends_no_deletion(ack_of: AckOf) -> None:
    """Its handler gives up after three tries: the request has failed, and the resource is left behind."""
    ack = ack_of(ACK_KINDS["Queue"])
    await ack.aws.set_faults(
        AwsFault(what="throttle", action="cloudcontrol.Handler", account=ack.builder.account, times=8)
    )
    await ack.start()
    mine = [await ack.made(f"q{number}") for number in range(4)]
    for number in range(4):
        await ack.delete(f"q{number}")
    await ack.until_removed(*mine)
    await ack.until_done(4)
    assert not any(job.attempts for job in await ack.every_job())
