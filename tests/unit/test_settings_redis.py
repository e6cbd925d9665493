"""Redis URLs: parsing, and no password in any text."""

import msgspec
import pytest

from service.settings import HostPort, RedisSettings, RedisUrl, Secret, SettingsError, load


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("redis://host", "redis://host:6379/0 (single)"),
        ("rediss://u:p@host:7000/3", "rediss://host:7000/3 (single)"),
        ("redis://[::1]:7000", "redis://[::1]:7000/0 (single)"),
        ("redis://host?db=4", "redis://host:6379/4 (single)"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0 (single)"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2 (single)"),
    ],
)
def test_an_address_is_described_by_where_it_leads(text: str, described: str) -> None:
    assert load(None, {"KNELL_REDIS_URL": text}).redis.described() == described


def test_escaped_signs_in_user_and_password_are_restored() -> None:
    url = RedisUrl.parse("redis://us%40er:p%2Fw%3A@host")
    assert url.username == "us@er"
    assert url.password == Secret("p/w:")


@pytest.mark.parametrize(
    "text",
    [
        "http://u:hunter2@host",
        "redis:/u:hunter2@host",
        "redis://u:hunter2@",
        "redis://u:hunter2@host:port",
        "redis://u:hunter2@host/first",
        "redis://u:hunter2#@host",
        "redis://host?password=hunter2",
        "redis://u:hunter2@host:99999",
        "unix://u:hunter2@host",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {"KNELL_REDIS_URL": text})
    assert "redis.url (from KNELL_REDIS_URL): cannot be used" in str(caught.value)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_a_password_in_the_address_shows_nowhere() -> None:
    settings = load(None, {"KNELL_REDIS_URL": "redis://u:hunter2@host/0"})
    secret = settings.redis.url.password
    assert secret is not None
    assert secret.reveal() == "hunter2"
    shown = f"{settings} {settings!r} {settings.redis.described()} {settings.redis.url} {secret} {secret!r}"
    assert "hunter2" not in shown
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(settings)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"MODE": "sentinel"}, "redis.sentinels: mode sentinel needs at least one host:port"),
        ({"SENTINELS": "a:1"}, "redis.sentinels: sentinels are named, but redis.mode is single"),
        ({"NODES": "a:1"}, "redis.nodes: cluster nodes are named, but redis.mode is single"),
        ({"MODE": "cluster", "URL": "redis://h/3"}, "redis.url: a cluster has only database 0"),
        ({"MODE": "cluster", "URL": "unix:///s"}, "redis.url: mode cluster cannot use a unix socket"),
        (
            {"URL": "redis://:p@h", "PASSWORD_FILE": "/f"},
            "redis.password_file: the url already holds a password",
        ),
        ({"URL": "redis://a:p@h", "USERNAME": "b"}, "redis.username: the url names another user"),
        ({"USERNAME": "b"}, "redis.username: a user without a password"),
        ({"SENTINEL_USERNAME": "b"}, "redis.sentinel_username: a user without a password"),
        ({"URL": "rediss://h", "TLS_CERT_FILE": "/c"}, "redis.tls: cert_file and key_file"),
        ({"TLS_CA_FILE": "/c"}, "redis.tls: TLS is set up, but redis.url does not begin with rediss://"),
    ],
)
def test_an_impossible_combination_is_refused(environ: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {f"KNELL_REDIS_{name}": value for name, value in environ.items()})
    assert told in str(caught.value)


def test_a_cluster_is_entered_by_its_nodes_or_else_by_the_address() -> None:
    url = RedisUrl.parse("redis://h:1")
    assert RedisSettings(mode="cluster", url=url).entry_nodes() == (HostPort("h", 1),)
    named = RedisSettings(mode="cluster", url=url, nodes=(HostPort("a", 2), HostPort("b", 3)))
    assert named.described() == "redis://a:2,b:3 (cluster)"


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:0", "host:65536", "a b:1", "::1:6379", "u@h:1"])
def test_what_is_no_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not "):
        HostPort.parse(text)
