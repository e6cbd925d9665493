"""`knell doctor`: whether CAPA's own collector is on, by its flags and version, and which settings it ignores."""

import msgspec
import pytest

from service.settings import FeatureSettings, PolicySettings, Settings, SourceSettings
from service.sources.capa import AWS_CLUSTERS, CAPA, EXTERNAL_RESOURCE_GC, FEATURE, AwsSettings
from workers.collectors.capa.checks_own_gc import capa_collects, ignored_settings, judge_capa

IMAGE = "registry.k8s.io/cluster-api-aws/cluster-api-aws-controller"


def deployment(*args: str, version: str = "v2.6.1", first: tuple[str, ...] = ()) -> bytes:
    containers = [
        {"name": "proxy", "args": list(first)},
        {"name": "manager", "image": f"{IMAGE}:{version}", "args": args},
    ]
    return msgspec.json.encode({"spec": {"template": {"spec": {"containers": containers}}}})


@pytest.mark.parametrize(
    ("told", "on"),
    [
        (deployment(), True),
        (deployment(version="v2.5.0"), True),
        (deployment(version="v2.4.2"), False),
        (deployment(version="v1.9.0"), False),
        (deployment(version="v3.0.0"), True),
        (deployment(version="latest"), None),
        (deployment("--feature-gates=EKS=true,ExternalResourceGC=false,AlternativeGCStrategy=false"), False),
        (deployment("--feature-gates=ExternalResourceGC=true", version="v2.0.0"), True),
        (deployment("--leader-elect", "--feature-gates", "ExternalResourceGC=FALSE"), False),
        (deployment("--feature-gates=EKS=true", version="v2.6.0"), True),
        (deployment("--feature-gates=ExternalResourceGC=true", "--feature-gates=ExternalResourceGC=false"), False),
        (deployment("--feature-gates=ExternalResourceGCs=false"), True),
        (deployment(first=("--feature-gates=Other=false",)), True),
        (b"{", None),
        (b"{}", None),
    ],
)
def test_whether_it_collects_is_decided_by_its_flag_and_else_by_its_version(told: bytes, on: bool | None) -> None:
    assert capa_collects(told) is on


def test_one_that_is_on_is_warned_of_with_what_it_ignores() -> None:
    assert judge_capa("here", False, ["anything"]).state == "fine"
    assert judge_capa("here", None, []).state == "unknown"
    both = judge_capa("here", True, [])
    apart = judge_capa("here", True, ["aws.tasks leaves out security-group"], "elsewhere")
    assert "our settings: aws.tasks leaves out security-group" in apart.what
    assert "our settings" not in both.what
    assert "ExternalResourceGC=false in --feature-gates of Deployment elsewhere/capa-controller-manager" in apart.mend
    for found in (both, apart):
        assert found.state == "warning"
        # No setting of ours restricts deletion.
        assert EXTERNAL_RESOURCE_GC in found.what
        assert (
            "ignores protection and policy by knell.dev (on objects, Namespaces and resources), the guard" in found.what
        )


def differences(settings: Settings) -> str:
    return "; ".join(ignored_settings(settings, ["aws"]))


def test_settings_that_capa_ignores_are_named() -> None:
    source = SourceSettings(resource=AWS_CLUSTERS, collector=CAPA)
    off = Settings(sources={"aws": source})
    assert differences(off) == "features.ExternalResourceGC is off"
    plain = msgspec.structs.replace(off, features=FeatureSettings(frozenset({FEATURE})))
    assert differences(plain) == ""
    more = AwsSettings(tasks=("load-balancer", "target-group", "security-group", "volume"), snapshot_first=True)
    assert differences(msgspec.structs.replace(plain, sections={"aws": more})) == ""
    fewer = msgspec.structs.replace(plain, sections={"aws": AwsSettings(tasks=("volume",))})
    assert differences(fewer) == "aws.tasks leaves out load-balancer, target-group, security-group"
    retained = msgspec.structs.replace(plain, policy=PolicySettings(deletion_policy="retain", dry_run=True))
    assert differences(retained) == "policy.dry_run is on; source aws retains"
    some = msgspec.structs.replace(source, opt_out="team=a", namespaces=("x",), paused=True)
    found = differences(msgspec.structs.replace(plain, sources={"aws": some}))
    assert found == "sources.aws.paused is on; source aws is not about all clusters (namespaces, opt_out)"
