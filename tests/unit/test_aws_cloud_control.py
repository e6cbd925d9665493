"""Removal through Cloud Control: ids, what is refused, tokens, delays, and what a read shows."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import Blocked, Draw, Job, JobRecord, Pending, Verdict
from service.contract.version import VERSION
from service.sources.aws import AWS_PLACES, AwsAccess
from tests.recording_batch import RecordingBatch
from workers.providers.aws.cloud_control_ids import (
    REFUSED_TYPES,
    CloudControlId,
    arn_of,
    cloud_control_id,
    refusal,
    split_cloud_control_id,
)
from workers.providers.aws.errors import AwsError, denied_action, error_from_response
from workers.providers.aws.kinds import IDENTIFIER_KINDS, KINDS
from workers.providers.aws.kinds.cloud_control import (
    CLOUD_CONTROL,
    DELETE,
    FOLLOW,
    LONGEST_CHECK,
    READ,
    check_delay,
    client_token,
    parse_event,
    repeat_delay,
)
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClaim, AwsResource, CallScope
from workers.providers.aws.reading.cloud_control import LARGEST, parse_resource
from workers.removal import RemovalProgress

ACCOUNT, REGION = "111122223333", "eu-west-1"
QUEUE_URL = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/jobs"
TABLE = CloudControlId("AWS::DynamoDB::Table", "orders")
TOKEN = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


# ---- ids


@pytest.mark.parametrize(
    ("type_", "identifier"),
    [
        ("AWS::SQS::Queue", QUEUE_URL),
        ("AWS::EKS::Addon", "cluster|addon"),
        ("AWS::EKS::Nodegroup", "cluster/nodes"),
        ("AWS::SNS::Topic", f"arn:aws:sns:{REGION}:{ACCOUNT}:news"),
        ("AWS::CloudWatch::Alarm", "with spaces inside"),
        ("Org1::Service2::Type3", "x" * 1024),
    ],
)
def test_an_id_is_split_at_the_first_slash(type_: str, identifier: str) -> None:
    id_ = cloud_control_id(type_, identifier)
    assert id_ == f"{type_}/{identifier}"
    assert split_cloud_control_id(id_) == (type_, identifier)


@pytest.mark.parametrize(
    "id_",
    [
        "", "/", "orders", "AWS::DynamoDB::Table", "AWS::DynamoDB::Table/", "AWS::DynamoDB/orders", "AWS::A::Table/o",
        "AWS::DynamoDB::Table::Module/o", "AWS:DynamoDB:Table/o", " AWS::DynamoDB::Table/o", "aws_::DynamoDB::Table/o",
        "AWS::DynamoDB::Table\n/o", "AWS::DynamoDB::Table/o\n", "AWS::DynamoDB::Table/ o", "AWS::DynamoDB::Table/o\x00",
        f"AWS::DynamoDB::Table/{'x' * 1025}",
    ],
)  # fmt: skip
def test_what_has_another_form_is_no_id(id_: str) -> None:
    with pytest.raises(ValueError, match=r"AWS::|identifier"):
        split_cloud_control_id(id_)


def test_an_id_is_not_made_of_parts_that_would_be_split_elsewhere() -> None:
    for type_, identifier in (("AWS::DynamoDB", "Table/orders"), ("AWS::DynamoDB::Table/a", "b"), ("", "orders")):
        with pytest.raises(ValueError, match=r"AWS::|TYPE/IDENTIFIER"):
            cloud_control_id(type_, identifier)


@pytest.mark.invariant(1)
@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        (f"arn:aws:sns:us-east-1:{ACCOUNT}:news", "is in region us-east-1"),
        (f"arn:aws:sns:{REGION}:999900001111:news", "is of account 999900001111"),
        ("arn:aws:iam::aws:policy/AdministratorAccess", "is of account aws"),
        (f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/jobs", "is in region us-east-1"),
        (f"https://us-east-1.queue.amazonaws.com/{ACCOUNT}/jobs", "is in region us-east-1"),
        (f"https://sqs.{REGION}.amazonaws.com/999900001111/jobs", "is of account 999900001111"),
        (f"a|arn:aws:sns:us-east-1:{ACCOUNT}:news", "is in region us-east-1"),
    ],
)
def test_an_identifier_of_another_account_or_region_is_never_asked_for(identifier: str, words: str) -> None:
    assert words in refusal(CloudControlId("AWS::Some::Type", identifier), ACCOUNT, REGION)


@pytest.mark.parametrize(
    "identifier",
    ["orders", QUEUE_URL, f"arn:aws:sns:{REGION}:{ACCOUNT}:news", f"arn:aws:iam::{ACCOUNT}:role/r", "a|b", "arn:b"],
)
def test_other_identifiers_are_asked_for(identifier: str) -> None:
    assert refusal(CloudControlId("AWS::Some::Type", identifier), ACCOUNT, REGION) == ""


def test_types_whose_handlers_do_more_or_less_than_is_wanted_are_refused() -> None:
    for type_ in (
        "AWS::SecretsManager::Secret", "AWS::RDS::DBInstance", "AWS::RDS::DBCluster", "AWS::KMS::Key",
        "AWS::S3::Bucket", "AWS::ECR::Repository", "AWS::IAM::Role", "AWS::IAM::ManagedPolicy", "AWS::Logs::LogGroup",
        "AWS::DocDB::DBCluster",
    ):  # fmt: skip
        assert type_ in REFUSED_TYPES
        assert "not removed through Cloud Control" in refusal(CloudControlId(type_, "a"), ACCOUNT, REGION)


@pytest.mark.parametrize(
    ("type_", "identifier", "region", "arn"),
    [
        ("AWS::EC2::VPC", "vpc-1", REGION, f"arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/vpc-1"),
        ("AWS::EC2::EIP", "192.0.2.1|eipalloc-1", REGION, f"arn:aws:ec2:{REGION}:{ACCOUNT}:elastic-ip/eipalloc-1"),
        ("AWS::EC2::VPC", "vpc-1", "cn-north-1", f"arn:aws-cn:ec2:cn-north-1:{ACCOUNT}:vpc/vpc-1"),
        ("AWS::Route53::HostedZone", "Z1", REGION, "arn:aws:route53:::hostedzone/Z1"),
        ("AWS::SNS::Topic", f"arn:aws:sns:{REGION}:{ACCOUNT}:news", REGION, f"arn:aws:sns:{REGION}:{ACCOUNT}:news"),
        ("AWS::Some::Type", f"arn:aws:a:{REGION}:{ACCOUNT}:b|c", REGION, ""),
        ("AWS::DynamoDB::Table", "orders", REGION, ""),
    ],
)
def test_an_arn_is_made_only_where_its_form_is_known(type_: str, identifier: str, region: str, arn: str) -> None:
    assert arn_of(CloudControlId(type_, identifier), ACCOUNT, region) == arn


# ---- reads


def read(properties: object, *, of: CloudControlId = TABLE, **described: Any) -> AwsResource:
    text = properties if isinstance(properties, str) else msgspec.json.encode(properties).decode()
    description = {"Identifier": of.identifier, "Properties": text, **described}
    return parse_resource(str(of), of, {"TypeName": of.type, "ResourceDescription": description})


@pytest.mark.parametrize(
    "properties",
    [
        {"Tags": [{"Key": "a", "Value": "b"}, {"Key": "c"}]},
        {"Tags": {"a": "b", "c": None}},
        {"HostedZoneTags": [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": ""}]},
        {"FileSystemTags": [{"Key": "a", "Value": "b", "More": 1}, {"Key": "c", "Value": None}]},
        {"Tags": None, "HostedZoneTags": [{"Key": "a", "Value": "b"}], "FileSystemTags": {"c": ""}},
    ],
)
def test_tags_are_read_in_each_form_that_a_type_has(properties: object) -> None:
    assert read(properties).tags == {"a": "b", "c": ""}


def test_a_resource_without_tags_has_none() -> None:
    assert read({"TableName": "orders", "Tags": []}).tags == read({"TableName": "orders"}).tags == {}


@pytest.mark.invariant(1)
@pytest.mark.parametrize(
    "properties",
    [
        "", "null", "[]", "1", '"text"', "<html></html>", "{", '{"Tags": 1}', '{"Tags": "a=b"}', '{"Tags": [1]}',
        '{"Tags": [{"TagKey": "a"}]}', '{"Tags": {"a": 1}}', '{"Tags": [{"Key": "a", "Value": 1}]}',
        "[" * 100_000, '{"Deep": ' + "[" * 100_000, '{"Long": "' + "x" * LARGEST + '"}', "\ud800",
    ],
)  # fmt: skip
def test_properties_that_can_not_be_read_are_an_error_and_neither_absence_nor_a_resource_without_tags(
    properties: str,
) -> None:
    with pytest.raises(AwsError) as raised:
        read(properties)
    assert raised.value.what == "unreadable"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ResourceDescription": None},
        {"ResourceDescription": {}},
        {"ResourceDescription": {"Identifier": "orders"}},
        {"ResourceDescription": {"Identifier": "orders", "Properties": None}},
        {"ResourceDescription": {"Identifier": "others", "Properties": "{}"}},
        {"TypeName": "AWS::SQS::Queue", "ResourceDescription": {"Identifier": "orders", "Properties": "{}"}},
    ],
)
def test_an_answer_without_properties_or_about_another_resource_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(AwsError, match="can't be read"):
        parse_resource(str(TABLE), TABLE, answer)


def test_services_may_write_an_identifier_in_lower_case() -> None:
    named = CloudControlId("AWS::ElastiCache::ReplicationGroup", "Cache")
    assert read({}, of=named, Identifier="cache").id == str(named)


def test_the_error_does_not_repeat_what_the_properties_say() -> None:
    with pytest.raises(AwsError) as raised:
        read('{"Environment": {"PASSWORD": "hunter2"}, "Tags": "hunter2"}')
    assert "hunter2" not in str(raised.value)


def test_only_an_arn_of_its_own_is_one() -> None:
    assert read({"Arn": "arn:aws:dynamodb:a:b:table/orders"}).arn == "arn:aws:dynamodb:a:b:table/orders"
    assert read({"ARN": "arn:aws:memorydb:a:b:cluster/c"}).arn == "arn:aws:memorydb:a:b:cluster/c"
    # That of a subscription names its topic.
    for other in ({"TopicArn": "arn:aws:sns:a:b:c"}, {"Arn": 1}, {"Arn": {"Ref": "x"}}, {"Arn": "no"}, {"Arn": None}):
        assert read(other).arn == ""


def test_only_instances_have_a_state() -> None:
    instance = CloudControlId("AWS::EC2::Instance", "i-1")
    assert read({"State": {"Name": "terminated", "Code": "48"}}, of=instance).state == "terminated"
    assert read({"State": {"Name": "terminated"}}).state == ""
    assert read({"State": "ENABLED"}).state == ""


# ---- requests


def test_a_client_token_is_the_same_for_a_repeated_call_and_another_one_for_the_next() -> None:
    tokens = [client_token("deletion#1.0", deletes) for deletes in (0, 0, 1, 2)]
    assert tokens[0] == tokens[1]
    assert len(set(tokens)) == 3
    assert client_token("deletion#2.0", 0) not in tokens
    for token in tokens:
        assert len(token) <= 128
        assert token.replace("-", "").isalnum()


def test_a_request_is_checked_later_and_later() -> None:
    first = timedelta(seconds=5)
    delays = [check_delay(first, checks) for checks in range(14)]
    assert delays == sorted(delays)
    assert [one.total_seconds() for one in delays[:6]] == [5, 5, 10, 10, 20, 20]
    assert check_delay(first, 10_000) == LONGEST_CHECK
    assert check_delay(timedelta(hours=1), 3) == timedelta(hours=1)


def test_after_a_conflict_the_next_request_is_made_later_and_later() -> None:
    assert [repeat_delay(requests).total_seconds() for requests in (0, 1, 2, 3, 10_000)] == [5, 5, 10, 20, 300]


@pytest.mark.parametrize("answer", [{}, {"ProgressEvent": None}, {"ProgressEvent": {"RequestToken": "", "X": 1}}])
def test_an_answer_that_describes_no_request_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(AwsError, match="does not describe the request"):
        parse_event(answer, "cloudformation:DeleteResource")


class OneAnswerClient:
    """A client whose calls all have this answer."""

    scope, account = CallScope(source="objects", namespace="tenant", region=REGION), ACCOUNT

    def __init__(self, event: dict[str, Any]) -> None:
        self._event = event

    async def call(self, _service: str, _operation: str, /, **_arguments: Any) -> dict[str, Any]:
        return {"ProgressEvent": {"RequestToken": TOKEN, **self._event}}

    def pages(self, _service: str, _operation: str, _key: str, /, **_arguments: Any) -> Any:
        raise AssertionError("a request has no pages")

    async def renew(self, _lasting: timedelta) -> None:
        """It has no identity that ends."""


async def followed(event: dict[str, Any], verdict: str = "check") -> Verdict:
    """The verdict of a job whose request is described so; `verdict` is that of its last attempt."""
    lane = f"aws/{ACCOUNT}/{REGION}/{FOLLOW}"
    record = JobRecord(
        v=VERSION, stage=0, lane=lane, kind=CLOUD_CONTROL.name, target=str(TABLE), resume=f" 1 2 {TOKEN}",
        verdict=verdict,
    )  # fmt: skip
    job, client = Job("deletion#1.0", 7, record), OneAnswerClient(event)
    attempt = AwsAttempt(
        job=job, claim=AwsClaim(scope=client.scope, account=ACCOUNT), judge=None, client=client,
        resource=AwsResource(kind=CLOUD_CONTROL.name, id=str(TABLE), tags={}), batch=RecordingBatch(lane, [job]),
        progress=RemovalProgress.read(record.resume), settings=AwsAccess(),
    )  # fmt: skip
    return await CLOUD_CONTROL.steps[FOLLOW].run(attempt)


def moved(verdict: Verdict) -> tuple[str, str]:
    assert isinstance(verdict, Pending)
    return (verdict.lane or "").rpartition("/")[2], verdict.resume


@pytest.mark.parametrize(
    ("event", "lane", "resume"),
    [
        ({"OperationStatus": "PENDING"}, FOLLOW, f" 1 3 {TOKEN}"),
        ({"OperationStatus": "IN_PROGRESS"}, FOLLOW, f" 1 3 {TOKEN}"),
        ({"OperationStatus": "CANCEL_IN_PROGRESS"}, FOLLOW, f" 1 3 {TOKEN}"),
        ({"OperationStatus": "IN_PROGRESS", "Operation": "UPDATE"}, FOLLOW, f" 1 3 {TOKEN}"),
        ({"OperationStatus": "SUCCESS"}, READ, " 1 0"),
        ({"OperationStatus": "SUCCESS", "Operation": "UPDATE"}, READ, " 1 0"),
        ({"OperationStatus": "FAILED", "ErrorCode": "NotFound"}, READ, " 1 0"),
        ({"OperationStatus": "FAILED", "ErrorCode": "AccessDenied", "Operation": "UPDATE"}, READ, " 1 0"),
        ({"OperationStatus": "CANCEL_COMPLETE", "Operation": "CREATE"}, READ, " 1 0"),
    ],
)
async def test_a_request_that_runs_is_followed_and_one_that_ended_is_read_again(
    event: dict[str, Any], lane: str, resume: str
) -> None:
    for verdict in ("check", "retry", "blocked"):
        assert moved(await followed(event, verdict)) == (lane, resume)


@pytest.mark.invariant(7)
@pytest.mark.parametrize("status", ["", "ROLLED_BACK", "success"])
async def test_a_status_that_is_not_known_neither_ends_a_request_nor_repeats_it(status: str) -> None:
    for verdict in ("check", "retry"):
        with pytest.raises(AwsError, match="unknown status"):
            await followed({"OperationStatus": status}, verdict)


async def test_a_failure_is_reported_once_and_then_requested_again() -> None:
    failure = {"OperationStatus": "FAILED", "ErrorCode": "ResourceConflict", "StatusMessage": "in use"}
    assert await followed(failure) == Blocked("ResourceConflict: in use", until=timedelta(seconds=5))
    for verdict in ("blocked", "throttled", "retry", "refused"):
        assert moved(await followed(failure, verdict)) == (DELETE, " 1 2")


async def test_what_a_handler_says_is_shown_without_credentials() -> None:
    said = "password=hunter2 AKIAABCDEFGHIJKLMNOP"
    for code in ("ResourceConflict", "AccessDenied", "Throttling"):
        verdict = await followed({"OperationStatus": "FAILED", "ErrorCode": code, "StatusMessage": said})
        assert "hunter2" not in str(verdict)
        assert "AKIA" not in str(verdict)


def error(code: str, message: str) -> AwsError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    found = error_from_response(response, "cloudformation:DeleteResource")
    assert isinstance(found, AwsError)
    return found


OTHER = "99999999-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.mark.parametrize("code", ["ConcurrentOperationException", "ClientTokenConflictException"])
@pytest.mark.parametrize(
    "message",
    [
        f"another operation is in progress, RequestToken: {TOKEN}",
        f"RequestToken {TOKEN} is running",
        f'{{"requestToken":"{TOKEN}"}}',
        f"the request token '{TOKEN}'",
        f"see {TOKEN}",
        f"AWS::Some::Type|{OTHER}: in progress, RequestToken={TOKEN}",
    ],
)
def test_the_request_that_is_in_the_way_is_found_in_the_message(code: str, message: str) -> None:
    assert error(code, message).running == TOKEN


def test_no_request_is_found_in_other_messages() -> None:
    assert error("ConcurrentOperationException", "another operation is in progress").running == ""
    assert error("GeneralServiceException", f"RequestToken: {TOKEN}").running == ""


def test_a_denial_names_the_permission_that_the_handler_lacks() -> None:
    said = "User: arn:aws:iam::1:user/k is not authorized to perform: sqs:DeleteQueue on resource: arn:aws:sqs:a:1:q"
    assert denied_action(said, "cloudformation:DeleteResource") == "sqs:DeleteQueue"
    assert error("AccessDeniedException", said).action == "sqs:DeleteQueue"
    assert error("AccessDeniedException", "no").action == "cloudformation:DeleteResource"


@pytest.mark.parametrize(
    ("what", "codes"),
    [
        ("gone", "ResourceNotFoundException RequestTokenNotFoundException"),
        ("throttled", "ThrottlingException"),
        ("unsupported", "TypeNotFoundException UnsupportedActionException PrivateTypeException"),
        ("unreachable", "HandlerInternalFailureException NetworkFailureException ServiceInternalErrorException"),
        ("other", "GeneralServiceException HandlerFailureException InvalidRequestException NotStabilizedException"),
        ("other", "ClientTokenConflictException ConcurrentOperationException ResourceConflictException"),
    ],
)
def test_the_codes_of_cloud_control_mean_what_the_facts_say(what: str, codes: str) -> None:
    assert {code: error(code, "no").what for code in codes.split()} == dict.fromkeys(codes.split(), what)


# ---- limits


def test_all_calls_of_an_account_and_region_share_one_bucket() -> None:
    limits = AwsLimits([CLOUD_CONTROL])
    costs = {}
    for operation in (DELETE, READ, FOLLOW):
        (draw,) = limits.of_lane(f"aws/{ACCOUNT}/{REGION}/{operation}") or ()
        assert isinstance(draw, Draw)
        assert (draw.limit.name, draw.limit.capacity, draw.limit.per) == (
            f"{REGION}/cloudcontrol.all", 25, timedelta(seconds=1),
        )  # fmt: skip
        costs[operation] = draw.cost
    # A deletion is read first. What only instance profiles need is reserved for none.
    assert costs == {DELETE: 2, READ: 1, FOLLOW: 1}


def test_a_person_can_take_the_tag_off_by_the_arn() -> None:
    command = AWS_PLACES.untag(f"aws/{ACCOUNT}/{REGION}", CLOUD_CONTROL.name, "AWS::EKS::Addon/a|b")
    assert command.startswith(f"aws resourcegroupstaggingapi untag-resources --region {REGION} --tag-keys knell.dev/")
    assert command.endswith("--resource-arn-list $ARN  # the ARN of AWS::EKS::Addon/a|b")


def test_the_kind_is_added_by_those_that_need_it_and_has_no_list() -> None:
    assert CLOUD_CONTROL in IDENTIFIER_KINDS
    assert CLOUD_CONTROL not in KINDS
    assert CLOUD_CONTROL.list_all is None
    assert CLOUD_CONTROL.arn_of_type("arn:aws:sns:eu-west-1:111122223333:news") is None
