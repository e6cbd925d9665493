"""Settings in a file or the environment, and the messages for invalid ones."""

from datetime import timedelta
from pathlib import Path

import pytest

from service.settings import HostPort, LimitOverride, SettingsError, load
from service.settings.document import document_type


def written(directory: Path, text: str) -> Path:
    path = directory / "knell.yaml"
    path.write_text(text)
    return path


def refused(config: Path | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(config, environ)
    return str(caught.value)


def test_without_file_and_variables_the_defaults_hold() -> None:
    settings = load(None, {})
    assert settings.redis.described() == "redis://127.0.0.1:6379/0 (single)"
    assert (settings.worker.lease, settings.worker.attempt_timeout) == (
        timedelta(minutes=1),
        timedelta(seconds=45),
    )
    assert (settings.redis.prefix, settings.redis.shards) == ("knell", 1)
    assert settings.testing.clock_offset == timedelta(0)


def test_two_workers_on_one_host_have_different_names() -> None:
    assert load(None, {}).worker.name != load(None, {}).worker.name


def test_a_file_sets_every_section(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        redis: {url: "rediss://db:7000/2", prefix: p, shards: 8, call_timeout: 250ms, tls: {verify: false}}
        worker: {concurrency: 3, lane_caps: {"azure/*": 5}, background_share: 0}
        retry: {cap: 1h30m}
        limits: {"arm.*": {capacity: 10, rate: 0.5}, "nrp.*": {window: 5m}, "elb.*": {learns: false}}
        retention: {lanes: 2h}
        surface: {port: 0}
        log: {level: debug, format: json}
        testing: {clock_offset: -5}
        """,
    )
    settings = load(config, {})
    assert settings.redis.described() == "rediss://db:7000/2 (single)"
    assert settings.redis.call_timeout == timedelta(milliseconds=250)
    assert settings.redis.tls.verify is False
    assert settings.worker.lane_caps == {"azure/*": 5}
    assert settings.retry.cap == timedelta(minutes=90)
    assert settings.limits == {
        "arm.*": LimitOverride(capacity=10, rate=0.5),
        "nrp.*": LimitOverride(window=timedelta(minutes=5)),
        "elb.*": LimitOverride(learns=False),
    }
    assert settings.surface.port == 0
    assert (settings.log.level, settings.log.format) == ("debug", "json")
    assert settings.testing.clock_offset == timedelta(seconds=-5)


def test_an_empty_file_and_an_empty_section_mean_the_defaults(tmp_path: Path) -> None:
    environ = {"KNELL_WORKER_NAME": "w"}
    assert load(written(tmp_path, ""), environ) == load(None, environ)
    assert load(written(tmp_path, "redis:\nlimits:\n"), environ) == load(None, environ)


def test_a_variable_wins_over_the_file_and_leaves_its_neighbours(tmp_path: Path) -> None:
    config = written(tmp_path, "worker: {concurrency: 3, batch: 7, lane_caps: {a: 1, b: 2}}")
    settings = load(config, {"KNELL_WORKER_CONCURRENCY": "9", "KNELL_WORKER_LANE_CAPS": "{b: 5, 'c/*': 6}"})
    assert (settings.worker.concurrency, settings.worker.batch) == (9, 7)
    assert settings.worker.lane_caps == {"a": 1, "b": 5, "c/*": 6}


def test_every_kind_of_value_can_be_given_as_a_variable() -> None:
    settings = load(
        None,
        {
            "KNELL_REDIS_MODE": "sentinel",
            "KNELL_REDIS_SENTINELS": "a:1, [::1]:2",
            "KNELL_REDIS_URL": "rediss://ignored",
            "KNELL_REDIS_TLS_VERIFY": "false",
            "KNELL_REDIS_TLS_CA_FILE": "/etc/ca.pem",
            "KNELL_WORKER_BACKGROUND_SHARE": "0.25",
            "KNELL_RETRY_BASE": "2",
            "KNELL_LIMITS": "{x: {capacity: 3}}",
        },
    )
    assert settings.redis.sentinels == (HostPort("a", 1), HostPort("::1", 2))
    assert settings.redis.tls.verify is False
    assert settings.redis.tls.ca_file == Path("/etc/ca.pem")
    assert settings.worker.background_share == 0.25
    assert settings.retry.base == timedelta(seconds=2)
    assert settings.limits == {"x": LimitOverride(capacity=3)}


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(None, {"KNELL_REDIS_PASSWORD_FILE": "", "KNELL_WORKER_BATCH": ""}).worker.batch == 100


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    config = written(tmp_path, "worker: {batch: 5}")
    assert load(None, {"KNELL_CONFIG": str(config)}).worker.batch == 5


def test_a_file_that_is_not_there_is_named() -> None:
    assert "/no/such/knell.yaml: cannot be read, No such file" in refused(Path("/no/such/knell.yaml"))


def test_a_broken_file_is_located_and_not_quoted(tmp_path: Path) -> None:
    message = refused(written(tmp_path, "redis:\n  url: 'redis://u:hunter2@h\n  mode: [\n"))
    assert "cannot be read as YAML" in message
    assert "line" in message
    assert "hunter2" not in message


def test_a_key_that_stands_twice_is_a_mistake(tmp_path: Path) -> None:
    message = refused(written(tmp_path, "worker:\n  batch: 1\n  batch: 2\n"))
    assert "key batch stands there twice, line 3" in message


def test_a_file_that_is_no_mapping_names_the_sections(tmp_path: Path) -> None:
    message = refused(written(tmp_path, "- worker"))
    assert all(section in message for section in document_type().__struct_fields__)
    assert {"redis", "features", "aws", "azure"} <= set(document_type().__struct_fields__)


def test_an_unknown_key_names_its_path_and_the_nearest_keys(tmp_path: Path) -> None:
    config = written(tmp_path, "worker: {concurency: 3}\nredis: {tls: {cafile: x}}\nwrker: {}")
    message = refused(config)
    assert f"worker.concurency (from {config}): unknown key; did you mean concurrency?" in message
    assert "redis.tls.cafile" in message
    assert "ca_file" in message
    assert "wrker" in message
    assert "did you mean worker" in message


def test_an_unknown_key_that_resembles_none_names_them_all(tmp_path: Path) -> None:
    assert "surface.zzz" in (message := refused(written(tmp_path, "surface: {zzz: 1}")))
    assert "allowed: host, port" in message


def test_an_unknown_variable_is_refused_with_the_nearest_and_without_its_value() -> None:
    message = refused(KNELL_REDIS_PASSWORD="hunter2", KNELL_WORKER_CONCURENCY="3", KNELL_QQQ="x")
    assert "KNELL_REDIS_PASSWORD: unknown variable; did you mean KNELL_REDIS_PASSWORD_FILE" in message
    assert "did you mean KNELL_WORKER_CONCURRENCY" in message
    assert "KNELL_QQQ: unknown variable; allowed are those that begin with KNELL_REDIS" in message
    assert "hunter2" not in message


def test_variables_that_kubernetes_makes_for_services_are_not_ours() -> None:
    settings = load(
        None,
        {
            "KNELL_SERVICE_HOST": "10.0.0.1",
            "KNELL_SERVICE_PORT": "8080",
            "KNELL_SERVICE_PORT_METRICS": "8080",
            "KNELL_PORT": "tcp://10.0.0.1:8080",
            "KNELL_PORT_8080_TCP": "tcp://10.0.0.1:8080",
            "KNELL_PORT_8080_TCP_ADDR": "10.0.0.1",
            "KNELL_REDIS_SERVICE_HOST": "10.0.0.2",
            "KNELL_SURFACE_PORT": "tcp://10.0.0.3:8080",
        },
    )
    assert settings.surface.port == 8080


def test_switches_of_the_test_suite_are_no_settings() -> None:
    assert load(None, {"KNELL_TEST_SERVERS": "embedded"}).redis.mode == "single"


def test_all_wrong_values_are_reported_at_once_with_what_is_allowed(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        redis: {mode: clster, shards: 0, prefix: "a{b", sentinels: [nohost], max_connections: true}
        worker: {lease: 5x, lane_caps: {a: 0}, background_share: 2, learn_up_to: 0.5}
        limits: {x: 3, y: {rate: 0}}
        surface: 7
        """,
    )
    message = refused(config, KNELL_WORKER_CONCURRENCY="many", KNELL_RETRY_CAP="-1s")
    for part in (
        f"redis.mode (from {config}): 'clster' given; allowed: one of single, sentinel, cluster",
        "redis.shards (from",
        "0 given; allowed: a whole number from 1 to 1024",
        "'a{b' given; allowed: a text without white space or braces",
        "redis.sentinels (from",
        "['nohost'] given; allowed: a list of host:port",
        "redis.max_connections (from",
        "True given; allowed: a whole number, 1 or more",
        "'5x' given; allowed: a duration such as",
        "worker.lane_caps.a (from",
        "2 given; allowed: a number from 0 to 1",
        "0.5 given; allowed: a number from 1 to 100",
        "limits.x (from",
        "limits.y.rate (from",
        "7 given; allowed: a mapping with the keys host, port",
        "worker.concurrency (from KNELL_WORKER_CONCURRENCY): 'many' given; allowed: a whole number",
        "retry.cap (from KNELL_RETRY_CAP): '-1s' given",
    ):
        assert part in message
    assert "14 problems" in message


def test_a_wrong_value_inside_a_mapping_variable_names_that_variable() -> None:
    assert "limits.x.rate (from KNELL_LIMITS): 0 given" in refused(KNELL_LIMITS="{x: {rate: 0}}")
    assert "limits (from KNELL_LIMITS): cannot be read as YAML" in refused(KNELL_LIMITS="{x: [")


def test_a_bare_value_in_place_of_a_section_is_reported_even_if_a_variable_sets_that_section(
    tmp_path: Path,
) -> None:
    assert "worker (from" in refused(written(tmp_path, "worker: 7"), KNELL_WORKER_BATCH="3")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (
            {"KNELL_WORKER_LEASE": "45s"},
            "worker.attempt_timeout: 45s given; must be shorter than worker.lease",
        ),
        (
            {"KNELL_REDIS_CALL_TIMEOUT": "2m"},
            "redis.call_timeout: 2m given; must be shorter than worker.lease",
        ),
        ({"KNELL_RETRY_BASE": "10m"}, "retry.base: 10m is longer than retry.cap, 5m"),
        ({"KNELL_RETRY_BLOCKED_BASE": "10m"}, "retry.blocked_base: 10m is longer than retry.blocked_cap, 5m"),
        ({"KNELL_LIMITS": "{x: {rate: 1, window: 1s}}"}, "limits.x: rate makes a bucket"),
        ({"KNELL_LIMITS": "{x: {}}"}, "limits.x: overrides nothing"),
    ],
)
def test_values_that_contradict_each_other_are_refused(environ: dict[str, str], told: str) -> None:
    assert told in refused(None, **environ)
