"""Identity objects and the namespaces that may use them, and the cache of expensive reads."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from service.cli.rbac import role_manifests
from service.settings import ClusterSettings, Settings, SourceSettings
from service.sources.capa import AWS_CLUSTERS, CAPA, AwsSettings
from workers.collectors.capa.identity_objects import (
    AllowedNamespaces,
    AssumedRole,
    CapaIdentity,
    kind_and_name,
    parse_identity,
    permits,
)
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.ttl_cache import TtlCache
from workers.providers.aws.errors import NoAccess

ROLE = "AWSClusterRoleIdentity/tenant"


def allowed(text: str) -> AllowedNamespaces | None:
    return msgspec.json.decode(text, type=AllowedNamespaces | None)


def identity(spec: str, called: str = ROLE) -> CapaIdentity:
    return parse_identity(called, "u", "7", f'{{"spec":{spec}}}'.encode())


# ---- allowed namespaces


@pytest.mark.parametrize("said", ["{}", '{"list":null}', '{"selector":{}}', '{"list":null,"selector":{}}'])
def test_an_identity_that_restricts_nothing_may_be_used_from_everywhere(said: str) -> None:
    assert permits(allowed(said), "anybody", {})


@pytest.mark.parametrize(
    "said", ["null", '{"list":[]}', '{"selector":{"matchLabels":{}}}', '{"list":[],"selector":{"matchExpressions":[]}}']
)
def test_an_identity_that_allows_no_namespace_may_not_be_used(said: str) -> None:
    assert not permits(allowed(said), "anybody", {"a": "b"})


def test_an_identity_that_says_nothing_of_namespaces_may_be_used_from_nowhere() -> None:
    assert identity('{"roleARN":"arn:aws:iam::111122223333:role/r"}').allowed is None
    assert not permits(None, "anybody", {})


def test_a_list_allows_only_the_namespaces_it_names() -> None:
    said = allowed('{"list":["team-a"],"selector":{}}')
    assert permits(said, "team-a", {})
    assert not permits(said, "team-b", {})
    assert not permits(said, "team-a-2", {})


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ('{"matchLabels":{"team":"a"}}', {"team": "a", "x": "y"}, True),
        ('{"matchLabels":{"team":"a","tier":"1"}}', {"team": "a"}, False),
        ('{"matchExpressions":[{"key":"team","operator":"In","values":["a","b"]}]}', {"team": "b"}, True),
        ('{"matchExpressions":[{"key":"team","operator":"In","values":["a","b"]}]}', {}, False),
        ('{"matchExpressions":[{"key":"team","operator":"NotIn","values":["a"]}]}', {}, True),
        ('{"matchExpressions":[{"key":"team","operator":"Exists"}]}', {"team": ""}, True),
        ('{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}', {"team": ""}, False),
        ('{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Exists"}]}', {"a": "b"}, False),
    ],
)
def test_a_selector_chooses_namespaces_by_their_labels(selector: str, labels: dict[str, str], fits: bool) -> None:
    assert permits(allowed(f'{{"selector":{selector}}}'), "team-x", labels) is fits


def test_either_the_list_or_the_selector_is_enough() -> None:
    said = allowed('{"list":["team-a"],"selector":{"matchLabels":{"team":"b"}}}')
    assert permits(said, "team-a", {})
    assert permits(said, "team-b", {"team": "b"})
    assert not permits(said, "team-c", {"team": "c"})


def test_labels_that_are_not_known_allow_nothing() -> None:
    none_of_it = allowed('{"selector":{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}}')
    assert not permits(none_of_it, "team-a", None)


@pytest.mark.parametrize(
    "said", ['"operator":"Like","values":["a"]', '"operator":"In"', '"operator":"Exists","values":["a"]']
)
def test_a_selector_without_a_meaning_is_no_permission(said: str) -> None:
    odd = allowed(f'{{"selector":{{"matchExpressions":[{{"key":"team",{said}}}]}}}}')
    with pytest.raises(ValueError, match="no meaning"):
        permits(odd, "team-a", {"team": "a"})


# ---- parsing


def test_a_role_is_assumed_with_everything_that_the_identity_says() -> None:
    found = identity(
        """{"roleARN":"arn:aws-cn:iam::111122223333:role/r","externalID":"x1","sessionName":"s","durationSeconds":900,
            "inlinePolicy":"{}","policyARNs":["arn:aws-cn:iam::aws:policy/ReadOnly"],
            "sourceIdentityRef":{"kind":"AWSClusterStaticIdentity","name":"keys"},"allowedNamespaces":{}}"""
    )
    assert found.source == "AWSClusterStaticIdentity/keys"
    assert found.role is not None
    assert found.role.partition == "aws-cn"
    assert found.role.arguments() == {
        "RoleArn": "arn:aws-cn:iam::111122223333:role/r", "RoleSessionName": "s", "ExternalId": "x1",
        "DurationSeconds": 900, "Policy": "{}", "PolicyArns": [{"arn": "arn:aws-cn:iam::aws:policy/ReadOnly"}],
    }  # fmt: skip


def test_what_a_role_does_not_say_is_left_to_sts() -> None:
    assert AssumedRole("arn:aws:iam::111122223333:role/r").arguments() == {
        "RoleArn": "arn:aws:iam::111122223333:role/r", "RoleSessionName": "knell"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("called", "spec", "said"),
    [
        (ROLE, '{"allowedNamespaces":{}}', "no role that could be assumed"),
        (ROLE, '{"roleARN":"arn:aws:iam::1:user/u"}', "no role that could be assumed"),
        (ROLE, '{"roleARN":7}', "can't be understood"),
        ("AWSClusterStaticIdentity/keys", "{}", "names no Secret"),
        ("AWSClusterControllerIdentity/other", "{}", "always named 'default'"),
        ("ConfigMap/x", "{}", "no kind of identity 'ConfigMap'"),
        ("/x", "{}", "no kind of identity ''"),
    ],
)
def test_an_identity_that_can_t_be_used_says_what_is_wrong_with_it(called: str, spec: str, said: str) -> None:
    with pytest.raises(NoAccess, match=said):
        identity(spec, called)


def test_a_reference_without_a_name_is_no_identity() -> None:
    with pytest.raises(NoAccess, match="has no name"):
        kind_and_name("AWSClusterRoleIdentity/")


def test_nothing_secret_is_in_what_is_shown_of_a_key_or_a_role() -> None:
    shown = repr(AwsCredentials("AKIAKEY", "very-secret", "the-token", "tenant a"))
    assert "tenant a" in shown
    assert not any(word in shown for word in ("AKIAKEY", "very-secret", "the-token"))
    assert "shared" not in repr(
        CapaIdentity(label="c", uid="u", version="1", role=AssumedRole("arn", external_id="shared"))
    )


# ---- cache


class CacheClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class NumberedLoads:
    """Returns a new number for each load."""

    def __init__(self, lasting: float = 10.0, fault: Exception | None = None) -> None:
        self.asked = 0
        self.fault = fault
        self._lasting = timedelta(seconds=lasting)

    async def __call__(self) -> tuple[int, timedelta]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return self.asked, self._lasting


async def test_what_was_found_serves_all_until_its_time_is_over() -> None:
    clock, source = CacheClock(), NumberedLoads()
    known = TtlCache[str, int](clock=clock)
    assert await asyncio.gather(*(known.get("a", source) for _ in range(50))) == [1] * 50
    clock.now = 9.9
    assert await known.get("a", source) == 1
    clock.now = 10.0
    assert await known.get("a", source) == 2


async def test_a_refusal_is_remembered_for_a_short_while() -> None:
    clock, source = CacheClock(), NumberedLoads(fault=NoAccess("not you", again=False))
    known = TtlCache[str, int](clock=clock)
    for _ in range(3):
        with pytest.raises(NoAccess, match="not you") as refused:
            await known.get("a", source)
        assert refused.value.again is False
    assert source.asked == 1
    clock.now = 5.0
    source.fault = None
    assert await known.get("a", source) == 2


async def test_any_other_failure_is_the_asker_s_own() -> None:
    source = NumberedLoads(fault=KeyError("x"))
    known = TtlCache[str, int]()
    for _ in range(2):
        with pytest.raises(KeyError):
            await known.get("a", source)
    assert source.asked == 2


async def test_a_waiting_caller_is_served_when_another_is_cancelled() -> None:
    source = NumberedLoads()
    known = TtlCache[str, int]()
    first = asyncio.ensure_future(known.get("a", source))
    second = asyncio.ensure_future(known.get("a", source))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2


async def test_what_is_forgotten_is_found_anew() -> None:
    source = NumberedLoads()
    known = TtlCache[str, int]()
    assert await known.get("a", source) == 1
    known.forget("a")
    assert await known.get("a", source) == 2


async def test_no_more_is_remembered_than_there_is_room_for() -> None:
    clock, source = CacheClock(), NumberedLoads()
    known = TtlCache[int, int](most=3, clock=clock)
    for key in range(4):
        await known.get(key, source)
    assert await known.get(3, source) == 4
    # The oldest entry was evicted.
    assert await known.get(0, source) == 5


# ---- where its Secrets are


def test_secrets_of_static_identities_may_be_read_where_the_settings_say_that_they_are() -> None:
    settings = Settings(
        clusters={"here": ClusterSettings()},
        sources={"clusters": SourceSettings(resource=AWS_CLUSTERS, collector=CAPA)},
        sections={"aws": AwsSettings(identity_namespace="providers")},
    )
    roles = [one for one in role_manifests(settings, "here") if one["kind"] == "Role"]
    readers = [
        role["metadata"]["namespace"] for role in roles for rule in role["rules"] if "secrets" in rule["resources"]
    ]
    assert readers == ["providers"]
