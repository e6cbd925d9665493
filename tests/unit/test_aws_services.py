"""Every AWS call in the code is of a service with a row, has a declared limit and, if it is a list, page tokens. A
service or operation that is not declared is not called at all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from botocore.session import Session

from service.contract.kept import RETAINED_TAG
from service.sources.aws import AWS_PLACES, UNTAG_COMMANDS, partition_of
from tests.aws_identifier_kinds import IDENTIFIER_ROWS, IdentifierKindRow
from tests.aws_kinds import AWS_KINDS, AwsKindRow
from workers.providers.aws import services
from workers.providers.aws.checks import probes_for
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.client.paging import paginate
from workers.providers.aws.kinds import IDENTIFIER_KINDS, KINDS
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.providers.aws.kinds.volumes import VOLUME
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.permissions import action_of
from workers.providers.aws.services import (
    FILE,
    SERVICES,
    TagCalls,
    Undeclared,
    page_tokens_of,
    service_named,
    tag_calls_of,
)

ROOT = Path(__file__).parents[2]
CODE = sorted((ROOT / "workers").rglob("*.py"))
ALL_KINDS = (*KINDS, *IDENTIFIER_KINDS)
LIMITS = AwsLimits(ALL_KINDS)
READERS = {"Ec2Reader": "ec2", "matching": "ec2"}


class CallInCode(NamedTuple):
    """`operation` is empty where the code computes it."""

    service: str
    operation: str
    paged: bool
    where: str


def calls_in(source: str, where: str) -> Iterator[CallInCode]:
    """Calls of clients and sessions, and what readers are declared with; names of constants are resolved."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }

    def text(node: ast.expr | None) -> str:
        found = constants.get(node.id) if isinstance(node, ast.Name) else node
        return found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else ""

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = {word.arg: text(word.value) for word in node.keywords if word.arg}
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        place = f"{where}:{node.lineno}"
        words = [text(one) for one in node.args]
        if isinstance(node.func, ast.Attribute) and name in ("call", "pages") and len(words) > 1:
            # Sessions have credentials and region first.
            service, operation = (words[2:4]) if name == "call" and len(words) > 3 and not words[0] else words[:2]
            if service:
                yield CallInCode(service, operation, name == "pages", place)
        elif name == "ElbReader":
            yield CallInCode(named["service"], named["operation"], True, place)
            yield CallInCode(named["service"], "describe_tags", False, place)
        elif name == "Ec2Reader":
            yield CallInCode("ec2", words[0], True, place)
        elif name == "matching" and isinstance(node.func, ast.Name) and words[1]:
            yield CallInCode("ec2", words[1], True, place)


def check(one: CallInCode) -> None:
    """Raises Undeclared."""
    service_named(one.service)
    if one.paged:
        page_tokens_of(one.service)
    if one.operation:
        LIMITS.of("eu-west-1", operation_names(one.service, one.operation).limited)


def test_every_call_in_the_code_has_a_row_and_a_limit() -> None:
    found = [one for file in CODE for one in calls_in(file.read_text(), str(file.relative_to(ROOT)))]
    assert len({(one.service, one.operation) for one in found if one.operation}) > 25
    assert {one.service for one in found} == {service.name for service in SERVICES}
    for one in found:
        check(one)


@pytest.mark.parametrize(
    "planted",
    [
        'await client.call("sqs", "delete_queue", QueueUrl=url)',
        'async for page in client.pages("redshift", "describe_clusters", "Clusters"): ...',
        'QUEUES = "sqs"\nawait client.call(QUEUES, "delete_queue")',
        'await client.call("eks", "delete_cluster", name=name)',
        'async for page in client.pages("sts", "list_anything", "Things"): ...',
    ],
)
def test_a_planted_call_without_a_row_or_a_limit_is_found_and_the_message_says_where_to_add_it(planted: str) -> None:
    (one,) = calls_in(planted, "planted.py")
    with pytest.raises(Undeclared, match=FILE):
        check(one)


def test_every_operation_of_every_kind_has_a_limit_and_its_resources_can_be_tagged() -> None:
    for kind in ALL_KINDS:
        tags = kind.tagging
        assert tags.max_ids > 0 if tags is not None else service_named(kind.service).untagged
        for operation in kind.operations:
            assert LIMITS.of("eu-west-1", operation), operation


def test_every_lane_of_a_kind_that_is_removed_by_identifier_draws_on_the_call_that_it_is_named_for() -> None:
    for kind in IDENTIFIER_KINDS:
        for operation in (kind.delete_operation, kind.check_operation, *kind.steps):
            names = {draw.limit.name for draw in LIMITS.of_lane(f"aws/111122223333/eu-west-1/{operation}") or ()}
            own = {draw.limit.name for draw in LIMITS.of("eu-west-1", operation)}
            assert own
            assert own <= names


def as_option(argument: str) -> str:
    """As the AWS CLI names it: --load-balancer-names for LoadBalancerNames."""
    return "--" + re.sub(r"(?<!^)([A-Z])", r"-\1", argument).lower()


@pytest.mark.parametrize("row", AWS_KINDS.values(), ids=lambda row: row.name)
def test_the_command_that_takes_the_tag_off_is_the_call_of_its_service(row: AwsKindRow) -> None:
    calls, id_ = tag_calls_of(row.service), next(iter(row.ids_by_arn.values()))
    words = AWS_PLACES.untag("aws/111122223333/eu-west-1", row.name, id_).split()
    assert words[:5] == ["aws", row.service, calls.remove.replace("_", "-"), "--region", "eu-west-1"]
    assert words[5:7] == [as_option(calls.ids), id_]
    (argument, removed), *more = calls.removed(RETAINED_TAG, "").items()
    assert not more
    assert words[7] == as_option(argument)
    assert words[8:] == [RETAINED_TAG if removed == [RETAINED_TAG] else f"Key={RETAINED_TAG}"]


@pytest.mark.parametrize("row", IDENTIFIER_ROWS.values(), ids=lambda row: row.name)
def test_the_command_for_a_kind_that_is_removed_by_identifier_takes_what_the_call_takes(row: IdentifierKindRow) -> None:
    (kind,) = [kind for kind in IDENTIFIER_KINDS if kind.name == row.name]
    words = AWS_PLACES.untag("aws/111122223333/cn-north-1", row.name, row.missing).split()
    assert words[:2] == ["aws", "s3control" if kind.tagging is None else row.service]
    assert words[3:5] == ["--region", "cn-north-1"]
    assert words[-1] == RETAINED_TAG
    if (calls := kind.tagging) is not None:
        assert words[2] == calls.remove.replace("_", "-")
        named = calls.name_of(row.missing, region="cn-north-1", account="111122223333")
        assert words[5:7] == [as_option(calls.ids), named]
        assert named == row.missing or named.startswith("arn:aws-cn:")
        (argument,) = calls.removed(RETAINED_TAG, "")
        assert words[7] == as_option(argument)
        assert calls.remove_arguments([named], RETAINED_TAG, "")[calls.ids] == named


def test_the_partition_of_every_region_that_the_sdk_knows_is_recognised_by_its_name() -> None:
    sdk = Session()
    for partition in sdk.get_available_partitions():
        for region in sdk.get_available_regions("ec2", partition, allow_non_regional=False):
            assert partition_of(region) == partition, region


def test_there_is_a_command_for_every_kind_and_words_for_one_that_is_not_known() -> None:
    assert UNTAG_COMMANDS.keys() == {kind.name for kind in (*KINDS, *IDENTIFIER_KINDS)}
    other = AWS_PLACES.untag("aws/111122223333/eu-west-1", "aws.toy", "toy-1")
    assert other == f"remove the tag {RETAINED_TAG} from toy-1 with the command of its service"


def test_a_tag_call_of_one_id_has_no_list_and_no_second_id() -> None:
    one = TagCalls(
        add="tag_resource", remove="untag_resource", ids="resourceArn", max_ids=1, one_id=True,
        added=lambda key, value: {"tags": {key: value}}, removed=lambda key, _value: {"tagKeys": [key]},
    )  # fmt: skip
    assert one.add_arguments(["a"], "k", "v") == {"resourceArn": "a", "tags": {"k": "v"}}
    assert one.remove_arguments(["a"], "k", "v") == {"resourceArn": "a", "tagKeys": ["k"]}
    with pytest.raises(ValueError, match="takes one id"):
        msgspec.structs.replace(one, max_ids=2)


@pytest.mark.invariant(7)
def test_a_kind_of_an_undeclared_service_or_without_a_limit_is_not_added() -> None:
    for changed, words in (
        ({"service": "sqs"}, "'sqs' has no row"),
        ({"service": "eks"}, "has no tag_calls"),
        ({"delete_operation": "sqs.DeleteQueue"}, "is of no service"),
        ({"delete_operation": "eks.DeleteCluster"}, "has no limit: declare changes of eks"),
        # A service without limits of its own is for calls that change nothing.
        ({"delete_operation": "sts.DeleteThing"}, "has no limit: declare limits of its service"),
    ):
        with pytest.raises(Undeclared, match=words) as refused:
            AwsLimits([msgspec.structs.replace(VOLUME, **changed)])
        assert FILE in str(refused.value)


def test_a_bucket_that_a_kind_declares_holds_also_for_a_service_without_limits() -> None:
    kind = msgspec.structs.replace(VOLUME, delete_operation="sts.DeleteThing", limits={"sts.DeleteThing": (4.0, 1.0)})
    (draw,) = AwsLimits([kind]).of("eu-west-1", "sts.DeleteThing")
    assert (draw.limit.name, draw.limit.capacity) == ("eu-west-1/sts.DeleteThing", 4.0)


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_the_doctor_probes_what_a_kind_is_read_with(kind: AwsKind) -> None:
    """By action: two services may have the same one."""
    actions = {action_of(one) for one in kind.read_operations}
    missing = sorted(actions - {read.action for read in probes_for(actions)})
    assert not missing, f"{', '.join(missing)} of {kind.name} is in no service's probes: add the call in {FILE}"


def test_an_added_kind_brings_its_own_bucket_and_lanes() -> None:
    limits = AwsLimits(KINDS)
    lane = "aws/111122223333/eu-west-1/eks.DeleteNodegroup"
    assert limits.of_lane(lane) is None
    kind = msgspec.structs.replace(
        VOLUME, name="aws.toy", delete_operation="eks.DeleteNodegroup", limits={"eks.DeleteNodegroup": (8.0, 2.0)}
    )
    limits.add([kind])
    sizes = {draw.limit.name: draw.limit.capacity for draw in limits.of_lane(lane) or ()}
    assert sizes["eu-west-1/eks.DeleteNodegroup"] == 8


def test_two_kinds_can_not_declare_different_limits_for_one_operation() -> None:
    declared = msgspec.structs.replace(VOLUME, limits={"ec2.DeleteVolume": (100, 5)})
    limits = AwsLimits([declared])
    limits.add([msgspec.structs.replace(declared, name="aws.same")])
    before = limits.of("eu-west-1", "ec2.DeleteVolume")
    other = msgspec.structs.replace(
        declared, name="aws.toy", limits={"ec2.DeleteVolume": (9, 1), "ec2.DeleteToy": (9, 1)}
    )
    with pytest.raises(ValueError, match=r"kind aws\.toy declares the limit \(9, 1\) for ec2\.DeleteVolume"):
        limits.add([other])
    assert limits.of("eu-west-1", "ec2.DeleteVolume") == before
    # Nothing of it counts.
    limits.add([msgspec.structs.replace(declared, name="aws.toy", limits={"ec2.DeleteToy": (8, 2)})])


@pytest.mark.parametrize("call", ["CreateTags", "DeleteTags"])
def test_a_kind_whose_tag_calls_have_no_limit_is_not_added(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (others,) = {"CreateTags", "DeleteTags"} - {call}
    # Only what its kind and the row declare by name has a limit.
    bare = msgspec.structs.replace(service_named("ec2"), changes=None, buckets={f"ec2.{others}": (9, 1)})
    monkeypatch.setitem(services._BY_NAME, "ec2", bare)
    monkeypatch.setitem(services._BY_LIMITED, "ec2", bare)
    changes = dict.fromkeys(VOLUME.operations, (9.0, 1.0))
    with pytest.raises(Undeclared, match=rf"ec2\.{call} has no limit"):
        AwsLimits([msgspec.structs.replace(VOLUME, limits=changes)])


def test_two_kinds_that_share_a_lane_reserve_what_the_larger_one_needs() -> None:
    lane = "aws/111122223333/eu-west-1/ec2.ReleaseAddress"
    larger = msgspec.structs.replace(
        ELASTIC_IP, name="aws.toy", read_operations=("ec2.DescribeAddresses", "ec2.DescribeVolumes")
    )
    for order in ([ELASTIC_IP, larger], [larger, ELASTIC_IP]):
        draws = AwsLimits(order).of_lane(lane) or ()
        assert {draw.limit.name: draw.cost for draw in draws} == {
            "eu-west-1/ec2.ReleaseAddress": 1,
            "eu-west-1/ec2.DescribeAddresses": 1,
            "eu-west-1/ec2.DescribeVolumes": 1,
        }


def test_only_sts_is_unlimited_on_purpose() -> None:
    assert [service.name for service in SERVICES if service.unlimited] == ["sts"]
    assert all(service.reads or service.every for service in SERVICES if not service.unlimited)


async def test_a_list_of_a_service_without_page_tokens_is_not_begun() -> None:
    calls = list[str]()

    async def call(service: str, operation: str, /, **_arguments: object) -> dict[str, object]:
        calls.append(f"{service} {operation}")
        return {}

    with pytest.raises(Undeclared, match="page_tokens"):
        async for _ in paginate(call, "sts", "list_anything", "Things", {}):
            pass
    assert calls == []
