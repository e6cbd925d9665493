"""Check of Cluster API's AWS provider (CAPA): whether its own garbage collector is on, and which settings it ignores.
Both collectors may run at once, because each takes a missing resource for deleted; but CAPA also deletes what our
protection, guard or settings keep."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from service.contract.checks import CheckResult, CheckState
from service.kubernetes import ClusterError, KubernetesClient, NotFound
from service.settings import Settings
from service.sources.capa import (
    CAPA_MANAGER,
    CAPA_NAMESPACE,
    DEFAULT_TASKS,
    EXTERNAL_RESOURCE_GC,
    EXTERNAL_RESOURCE_TASKS,
    FEATURE,
    AwsSettings,
)
from workers.collectors.capa.checks_accounts import check_accounts

_FLAG: Final = "--feature-gates"
_TAG: Final = re.compile(r":v(\d+)\.(\d+)\.")
_ON_SINCE: Final = (2, 5)
_IGNORES: Final = (
    f"It goes by {EXTERNAL_RESOURCE_GC} and {EXTERNAL_RESOURCE_TASKS} alone: it ignores protection and policy by "
    f"knell.dev (on objects, Namespaces and resources), the guard, namesakes, and groups that the spec names"
)
_TRUE: Final = ("1", "t", "true")
_FALSE: Final = ("0", "f", "false")


class _Container(msgspec.Struct, frozen=True):
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _PodTemplate(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(msgspec.Struct, frozen=True):
    template: _PodTemplate = _PodTemplate()


class _Deployment(msgspec.Struct, frozen=True):
    spec: _DeploymentSpec = _DeploymentSpec()


async def check_capa(
    cluster: KubernetesClient, settings: Settings, name: str, ours: Sequence[str]
) -> list[CheckResult]:
    """`ours` are the sources of clusters on AWS in this cluster."""
    found = [_check_feature(settings, name, ours), await check_accounts(cluster, settings, name, ours)]
    where = settings.section(AwsSettings).identity_namespace
    try:
        told = await cluster.request("GET", f"/apis/apps/v1/namespaces/{where}/deployments/{CAPA_MANAGER}")
    except NotFound:
        what = f"there is no Deployment {CAPA_MANAGER} in {where}: whether CAPA collects, too, is not known"
        mend = f"set aws.identity_namespace to where CAPA runs, or look for {_FLAG} there"
        return [*found, _result(name, "unknown", what, mend)]
    except ClusterError as error:
        mend = f"knell role --cluster {name} | kubectl apply -f -, and run as that service account"
        return [*found, _result(name, "unknown", f"whether CAPA collects, too, is not known: {error}", mend)]
    return [*found, judge_capa(name, capa_collects(told), list(ignored_settings(settings, ours)), where)]


def _check_feature(settings: Settings, name: str, ours: Sequence[str]) -> CheckResult:
    check, node = "feature", f"cluster {name}"
    if settings.features.on(FEATURE):
        return CheckResult(check=check, state="fine", what=f"{FEATURE} is on", node=node)
    what = f"{FEATURE} is off: {', '.join(ours)} mark nothing, and what is going with our finalizer waits"
    mend = f"set features.{FEATURE} (KNELL_FEATURES_{FEATURE.upper()}) to true, or take the sources out"
    return CheckResult(check=check, state="warning", what=what, mend=mend, node=node)


def capa_collects(deployment: bytes) -> bool | None:
    """Whether CAPA's own collector is on, by its feature gate, else by its version; None if neither is found."""
    try:
        containers = msgspec.json.decode(deployment, type=_Deployment).spec.template.spec.containers
    except msgspec.DecodeError:
        return None
    for container in containers:
        said = _gate_value([*container.command, *container.args])
        if said is not None:
            return said
    for container in containers:
        if found := _TAG.search(container.image):
            return (int(found[1]), int(found[2])) >= _ON_SINCE
    return None


def _gate_value(words: Sequence[str]) -> bool | None:
    """The last occurrence of the feature gate wins."""
    gates = [word.partition("=")[2] for word in words if word.startswith(f"{_FLAG}=")]
    gates += [after for word, after in pairwise(words) if word == _FLAG]
    said: bool | None = None
    for gate in ",".join(gates).split(","):
        key, _, value = gate.partition("=")
        word = value.strip().casefold()
        if key.strip() == FEATURE and word in (*_TRUE, *_FALSE):
            said = word in _TRUE
    return said


def ignored_settings(settings: Settings, ours: Sequence[str]) -> Iterator[str]:
    """Our settings that restrict deletion, and that CAPA ignores."""
    if not settings.features.on(FEATURE):
        yield f"features.{FEATURE} is off"
    if missing := [task for task in DEFAULT_TASKS if task not in settings.section(AwsSettings).tasks]:
        yield f"aws.tasks leaves out {', '.join(missing)}"
    for key in ("paused", "dry_run"):
        if getattr(settings.policy, key):
            yield f"policy.{key} is on"
    for name in ours:
        source = settings.sources[name]
        yield from (f"sources.{name}.{key} is on" for key in ("paused", "dry_run") if getattr(source, key))
        if (source.deletion_policy or settings.policy.deletion_policy) == "retain":
            yield f"source {name} retains"
        limits = [key for key in ("namespaces", "selector", "opt_in", "opt_out") if getattr(source, key)]
        if limits:
            yield f"source {name} is not about all clusters ({', '.join(limits)})"


def judge_capa(cluster: str, on: bool | None, differences: Sequence[str], where: str = CAPA_NAMESPACE) -> CheckResult:
    """`where` is the namespace of CAPA."""
    if on is None:
        what = f"the Deployment {CAPA_MANAGER} does not tell whether CAPA's own collector is on"
        return _result(cluster, "unknown", what, f"look at its {_FLAG} and its version")
    if not on:
        return _result(cluster, "fine", "CAPA's own collector is off: ours alone collects")
    what = (
        f"CAPA's own collector is on beside ours: it removes {', '.join(DEFAULT_TASKS)} of every cluster whose "
        f"annotations allow it. {_IGNORES}"
    )
    if differences:
        what += f". Nor does it go by our settings: {'; '.join(differences)}"
    off = f"set {FEATURE}=false in {_FLAG} of Deployment {where}/{CAPA_MANAGER} (EXTERNAL_RESOURCE_GC=false)"
    return _result(cluster, "warning", what, off)


def _result(cluster: str, state: CheckState, what: str, mend: str = "") -> CheckResult:
    return CheckResult(check="CAPA's own collector", state=state, what=what, mend=mend, node=f"cluster {cluster}")
