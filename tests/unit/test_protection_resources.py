"""Which resources are protected, and by the annotations of which services."""

from service.admission.protected_resources import ProtectedResources
from service.settings import ClusterSettings, Settings, SourceSettings
from service.settings.protection import ProtectionSettings


def source(resource: str, *, service: str = "", cluster: str = "here") -> SourceSettings:
    return SourceSettings(resource=resource, collector="none", service=service, cluster=cluster)


def protected(*groups: str, **sources: SourceSettings) -> ProtectedResources:
    clusters = {"here": ClusterSettings(), "there": ClusterSettings()}
    made = Settings(clusters=clusters, sources=sources, protection=ProtectionSettings(groups=groups))
    return ProtectedResources(made, "here")


def test_resources_of_ack_have_the_service_of_their_group_whatever_a_source_says() -> None:
    known = protected(a=source("buckets.s3.services.k8s.aws", service="storage"))
    assert known.services("buckets.s3.services.k8s.aws") == ("s3",)
    assert known.services("tables.dynamodb.services.k8s.aws") == ("dynamodb",)
    assert known.declared == {}


def test_the_group_of_ack_itself_and_groups_that_end_alike_are_not_protected() -> None:
    known = protected()
    for resource in ("fieldexports.services.k8s.aws", "buckets.s3services.k8s.aws", "services.k8s.aws", "pods"):
        assert known.services(resource) == ()


def test_a_resource_of_several_sources_has_the_services_of_all_in_one_spelling() -> None:
    known = protected(a=source("widgets.knell.test", service="S3"), b=source("widgets.knell.test"))
    assert known.services("widgets.knell.test") == ("s3", "")


def test_sources_of_another_cluster_protect_nothing_here() -> None:
    assert protected(a=source("widgets.knell.test", cluster="there")).services("widgets.knell.test") == ()


def test_a_configured_group_has_the_annotations_for_all_services_alone() -> None:
    known = protected("apps", a=source("deployments.apps", service="shop"))
    assert known.services("statefulsets.apps") == ("",)
    assert known.services("deployments.apps") == ("shop",)
    assert known.services("configmaps") == ()


def test_a_resource_of_the_core_group_is_protected_if_a_source_has_it() -> None:
    assert protected(a=source("configmaps")).services("configmaps") == ("",)
