"""Settings of clusters on AWS: feature flags, tasks, and contradictions."""

from datetime import timedelta
from pathlib import Path

import pytest

from service.settings import SettingsError, load
from service.sources.capa import DEFAULT_TASKS, TASKS, AwsSettings

CLUSTERS = "awsclusters.infrastructure.cluster.x-k8s.io"


def written(directory: Path, text: str) -> Path:
    path = directory / "knell.yaml"
    path.write_text(text)
    return path


def refused(config: Path | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(config, environ)
    return str(caught.value)


def test_nothing_is_on_and_little_is_removed_by_default() -> None:
    settings = load(None, {})
    assert not settings.features.on("ExternalResourceGC")
    # What needs no feature does not wait for one; a feature that nobody knows is not on.
    assert settings.features.on("")
    assert not settings.features.on("Unheard")
    assert (settings.section(AwsSettings).tasks, settings.section(AwsSettings).finding) == (DEFAULT_TASKS, "auto")
    assert settings.section(AwsSettings).settle == timedelta(seconds=60)
    by_identifier = settings.section(AwsSettings)
    removed = (by_identifier.empty_buckets, by_identifier.delete_images, by_identifier.detach_policies)
    assert removed == (False, False, False)
    assert by_identifier.recovery_window == timedelta(days=30)
    dangerous = (
        settings.section(AwsSettings).snapshot_first,
        settings.section(AwsSettings).lift_deletion_protection,
        settings.section(AwsSettings).revoke_foreign_rules,
    )
    assert dangerous == (False, False, False)


def test_a_file_and_the_environment_set_them(tmp_path: Path) -> None:
    text = """
    features: {ExternalResourceGC: true}
    aws: {tasks: [volume, load-balancer], snapshot_first: true, account: "012345678901", settle: 5s,
          endpoint: "http://127.0.0.1:5000", finding: describe, check_after: 1s, drain_check: 250ms}
    """
    settings = load(written(tmp_path, text), {})
    assert settings.features.on("ExternalResourceGC")
    assert settings.section(AwsSettings).tasks == ("volume", "load-balancer")
    assert (settings.section(AwsSettings).account, settings.section(AwsSettings).endpoint) == (
        "012345678901",
        "http://127.0.0.1:5000",
    )
    assert settings.section(AwsSettings).drain_check == timedelta(milliseconds=250)
    above = {"KNELL_FEATURES_EXTERNALRESOURCEGC": "false", "KNELL_AWS_TASKS": "nat-gateway, elastic-ip"}
    over = load(tmp_path / "knell.yaml", above)
    assert not over.features.on("ExternalResourceGC")
    assert over.section(AwsSettings).tasks == ("nat-gateway", "elastic-ip")
    assert over.section(AwsSettings).snapshot_first


def test_what_tenants_may_choose_is_what_is_done_by_default_unless_settings_allow_more(tmp_path: Path) -> None:
    assert load(None, {}).section(AwsSettings).allowed == DEFAULT_TASKS
    assert load(written(tmp_path, "aws: {tasks: [volume]}"), {}).section(AwsSettings).allowed == ("volume",)
    more = load(written(tmp_path, "aws: {tasks: [volume], allowed_tasks: [elastic-ip, volume]}"), {})
    assert (more.section(AwsSettings).tasks, more.section(AwsSettings).allowed) == (
        ("volume",),
        ("elastic-ip", "volume"),
    )
    less = refused(written(tmp_path, "aws: {tasks: [volume, load-balancer], allowed_tasks: [load-balancer]}"))
    assert "aws.tasks" in less
    assert "names volume, which aws.allowed_tasks does not allow" in less
    assert "does not allow" in refused(written(tmp_path, "aws: {allowed_tasks: []}"))


def test_an_unknown_feature_is_answered_with_those_there_are(tmp_path: Path) -> None:
    said = refused(written(tmp_path, "features: {Everything: true}"))
    assert "features.Everything" in said
    assert "allowed: ExternalResourceGC" in said
    assert "did you mean ExternalResourceGC?" in refused(written(tmp_path, "features: {ExternalResourcesGC: true}"))
    # The name in the code is none that a user may write.
    assert "unknown key" in refused(written(tmp_path, "features: {external_resource_gc: true}"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: [load-balancers]", f"allowed: a list of some of {', '.join(TASKS)}"),
        ("tasks: volume", "a list of some of"),
        ("tasks: []", "aws.tasks: names no task"),
        ("account: 123456789012", "12 digits, in quotes"),
        ('account: "123"', "12 digits"),
        ("endpoint: localhost:5000", "http(s)://host:port"),
        ("finding: both", "one of auto, tagging, describe"),
        ("settle: -1s", "at least 0s"),
        ("recovery_window: 6d", "at least 7d, at most 30d"),
        ("recovery_window: 31d", "at least 7d, at most 30d"),
        ("snapshot_first: maybe", "true or false"),
    ],
)
def test_a_wrong_value_is_answered_with_what_is_allowed(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(written(tmp_path, f"aws: {{{text}}}"))


def source(**changes: str) -> str:
    given = {"resource": CLUSTERS, "collector": "capa", **changes}
    fields = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"clusters: {{here: {{in_cluster: true}}}}\nsources: {{aws: {{{fields}}}}}"


def test_the_collector_of_clusters_takes_only_their_two_kinds_and_only_with_a_finalizer(tmp_path: Path) -> None:
    assert load(written(tmp_path, source()), {}).sources["aws"].collector == "capa"
    planes = "awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io"
    load(written(tmp_path, source(resource=planes)), {})
    wrong = refused(written(tmp_path, source(resource="clusters.cluster.x-k8s.io")))
    assert "sources.aws.resource" in wrong
    assert f"{CLUSTERS} or {planes}" in wrong
    observed = refused(written(tmp_path, source(mode="observe")))
    assert "sources.aws.mode" in observed
    assert "finalizer" in observed
