"""The admission policies on the real control plane, and kinds of objects that they protect."""

import asyncio
import ssl
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import aiohttp
import pytest

from service.admission.judgement import JudgedObject, judge_object
from service.admission.names import POLICY
from service.admission.policies import policy_manifests
from service.admission.protected_resources import ProtectedResources
from service.settings import ClusterSettings, Settings, SourceSettings
from service.settings.protection import ProtectionSettings
from standins.controlplane import ControlPlane
from tests.api_servers import need_real
from tests.kube import Crd, Kube, KubeResponse, wait_until

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
NAMESPACES: Final = "/api/v1/namespaces"

BUCKETS: Final = Crd(group="s3.services.k8s.aws", plural="buckets", versions=("v1", "v1alpha1"))
VAULTS: Final = Crd(group="s3.services.k8s.aws", plural="vaults", scope="Cluster")
GADGETS: Final = Crd(group="declared.knell.test", plural="gadgets")
"""Of two sources, with different services; they have the subresource `scale`."""
ITEMS: Final = Crd(group="configured.knell.test", plural="items")

SETTINGS: Final = Settings(
    clusters={"here": ClusterSettings()},
    sources={
        "gadgets": SourceSettings(resource=GADGETS.resource, collector="none", service="S3"),
        "more-gadgets": SourceSettings(resource=GADGETS.resource, collector="none", service="rds"),
    },
    protection=ProtectionSettings(groups=(ITEMS.group,), restrict_marks=True),
)
PROTECTED: Final = ProtectedResources(SETTINGS, "here")

DRY: Final = "?dryRun=All"
_CONNECTIONS: Final = 8


class Request(NamedTuple):
    method: str
    path: str
    body: object = None


def of_policy(message: str, name: str = POLICY) -> str:
    """A message as the API server shows it to the caller, after the name of the object."""
    return f"is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {message}"


class AppliedPolicies:
    """Both policies, effective."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kube = Kube(plane.url, plane.token, plane.ca)

    def namespace(self, annotations: Mapping[str, str] | None = None) -> str:
        """Makes one and says its name."""
        return self.namespaces([annotations or {}])[0]

    def namespaces(self, wanted: Iterable[Mapping[str, str]]) -> list[str]:
        """Makes a Namespace for each and says their names."""
        bodies = [_namespace(annotations) for annotations in wanted]
        for answer in self.answers(Request("POST", NAMESPACES, body) for body in bodies):
            assert answer.status == 201, answer
        return [body["metadata"]["name"] for body in bodies]

    def make(self, crd: Crd, namespace: str, annotations: Mapping[str, str], *, name: str = "", **metadata: Any) -> str:
        """Makes an object and says its path."""
        name = name or f"o{uuid.uuid4().hex[:10]}"
        self.kube.create(crd.path(namespace), crd.body(name, annotations=dict(annotations), **metadata))
        return crd.path(namespace, name)

    def answers(self, requests: Iterable[Request]) -> list[KubeResponse]:
        """To many requests, over a few connections that stay open."""
        return asyncio.run(self._answers(requests))

    async def _answers(self, requests: Iterable[Request]) -> list[KubeResponse]:
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS, ssl=ssl.create_default_context(cafile=self.plane.ca), force_close=False
        )
        headers = {"Authorization": f"Bearer {self.plane.token}"}
        async with aiohttp.ClientSession(self.plane.url, connector=connector, headers=headers) as session:

            async def answer(request: Request) -> KubeResponse:
                async with session.request(request.method, request.path, json=request.body) as found:
                    return KubeResponse(found.status, await found.json())

            return await asyncio.gather(*(answer(request) for request in requests))

    def annotate(self, path: str, changes: Mapping[str, str | None]) -> None:
        """None removes an annotation."""
        self.kube.patch(path, {"metadata": {"annotations": changes}})

    def try_delete(self, path: str) -> str:
        """The message of the denial of a server dry-run DELETE; empty if it is allowed."""
        return denial(self.kube.request("DELETE", path + DRY))

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.plane.kubectl(*arguments, stdin=stdin)


def judged(crd: Crd, path: str, own: Mapping[str, str], namespace: Mapping[str, str]) -> str:
    """The message of the pure function for the object at a path; empty if nothing protects it."""
    words = path.split("/")
    inside = words[words.index("namespaces") + 1] if "namespaces" in words else ""
    about = JudgedObject(crd.resource, crd.kind, inside, words[-1], own)
    denied = judge_object(about, namespace, PROTECTED.services(crd.resource))
    return denied.message if denied else ""


def denial(answer: KubeResponse) -> str:
    """The message of the policy in the answer to a DELETE, without what the API server puts before it; empty if it is
    allowed."""
    if answer.status == 200:
        return ""
    assert (answer.status, answer.reason) == (403, "Forbidden"), answer
    _, marker, message = answer.body["message"].partition(of_policy(""))
    assert marker, answer
    return str(message)


@pytest.fixture(scope="module")
def policies(request: pytest.FixtureRequest) -> Iterator[AppliedPolicies]:
    """For the tests of a module; other modules see neither policies nor kinds."""
    need_real()
    plane: ControlPlane = request.getfixturevalue("real_api")
    made = AppliedPolicies(plane)
    kinds = (BUCKETS, VAULTS, GADGETS, ITEMS)
    for crd in kinds:
        # Tests of ACK leave one of that name.
        made.kube.uninstall(crd)
        made.kube.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(crd))
    for crd in kinds:
        made.kube.wait_until_served(crd)
    with _applied(made):
        yield made
    for crd in kinds:
        made.kube.delete(crd.own_path)
    for crd in kinds:
        wait_until(f"{crd.resource} is gone", lambda crd=crd: made.kube.get(crd.own_path) is None)  # type: ignore[misc]


@contextmanager
def _applied(policies: AppliedPolicies) -> Iterator[None]:
    probe = policies.make(VAULTS, "", {"knell.dev/prevent-delete": "true"})
    manifests = policy_manifests(PROTECTED, restrict_marks=True)
    paths = []
    for one in manifests:
        plural = {"ValidatingAdmissionPolicy": "policies", "ValidatingAdmissionPolicyBinding": "policybindings"}
        place = f"{ADMISSION}/validatingadmission{plural[one['kind']]}"
        policies.kube.create(place, one)
        paths.append(f"{place}/{one['metadata']['name']}")
    try:
        wait_until(f"{POLICY} is effective", lambda: policies.kube.request("DELETE", probe + DRY).status == 403)
        yield
    finally:
        for path in paths:
            policies.kube.delete(path)
        wait_until(f"{POLICY} is without effect", lambda: policies.kube.request("DELETE", probe + DRY).status == 200)


def _namespace(annotations: Mapping[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": f"t{uuid.uuid4().hex[:10]}", "annotations": dict(annotations)}}


def _definition(crd: Crd) -> dict[str, Any]:
    made: dict[str, Any] = crd.definition()
    if crd is GADGETS:
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        made["spec"]["versions"][0]["subresources"]["scale"] = paths
    return made
