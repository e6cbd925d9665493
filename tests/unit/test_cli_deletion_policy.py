"""`--deletion-policy` overrides the settings in general or for one service, and refuses invalid values."""

import pytest
from click.testing import CliRunner

from service.cli.deletion_policy import override_policies, parse_policies
from service.cli.main import cli
from service.cli.session import InvalidUsage
from service.settings import PolicySettings, Settings, SourceSettings

BUCKETS = SourceSettings(resource="buckets.s3.services.k8s.aws", collector="none")
POOLS = SourceSettings(resource="nodeclaims.karpenter.sh", collector="none", service="Compute")
SOURCES = {"buckets": BUCKETS, "pools": POOLS}


def settings(**policy: object) -> Settings:
    return Settings(sources=SOURCES, policy=PolicySettings(**policy))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "given", "general", "services"),
    [
        ((), {"deletion_policy": "retain", "services": {"s3": "delete"}}, "retain", {"s3": "delete"}),
        (("retain",), {}, "retain", {}),
        (("Delete",), {"deletion_policy": "retain"}, "delete", {}),
        (("s3=retain",), {}, "delete", {"s3": "retain"}),
        (("S3=Retain", "compute=retain", "delete"), {}, "delete", {"s3": "retain", "compute": "retain"}),
        # The same service in another spelling would contradict it, and hold.
        (("s3=retain",), {"services": {"S3": "delete", "ec2": "retain"}}, "delete", {"s3": "retain", "ec2": "retain"}),
        (("retain",), {"services": {"s3": "delete"}}, "retain", {"s3": "delete"}),
        (("retain", "retain"), {}, "retain", {}),
    ],
)
def test_it_replaces_what_the_settings_say_and_leaves_the_rest(
    said: tuple[str, ...], given: dict[str, object], general: str, services: dict[str, str]
) -> None:
    policy = override_policies(settings(**given, dry_run=True), parse_policies(said)).policy
    assert (policy.deletion_policy, policy.services, policy.dry_run) == (general, services, True)


@pytest.mark.parametrize("command", ["watch", "work", "run"])
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["keep"], "'keep' given; allowed: delete, retain, SERVICE=delete, SERVICE=retain"),
        (["s3=keep"], "'s3=keep' given"),
        (["=retain"], "'=retain' given"),
        (["s3="], "'s3=' given"),
        ([""], "'' given"),
        (["retain", "delete"], "both delete and retain given for all"),
        (["s3=retain", "S3=delete"], "both delete and retain given for s3"),
        (["s33=retain"], "no source is about service 's33'; services of the sources: none"),
    ],
)
def test_an_invalid_value_ends_the_command_with_the_allowed_values(command: str, said: list[str], words: str) -> None:
    options = [word for one in said for word in ("--deletion-policy", one)]
    answer = CliRunner().invoke(cli, [command, *options], terminal_width=1000)
    assert answer.exit_code == 2
    assert words in answer.stderr


def test_a_service_that_no_source_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidUsage, match="no source is about service 'sqs'; services of the sources: compute, s3"):
        override_policies(settings(), parse_policies(("sqs=retain",)))


@pytest.mark.parametrize("command", ["watch", "work", "run"])
def test_the_help_names_it(command: str) -> None:
    answer = CliRunner().invoke(cli, [command, "--help"])
    assert "--deletion-policy [SERVICE=]delete|retain" in answer.output
