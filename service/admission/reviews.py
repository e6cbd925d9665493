"""Admission reviews (admission.k8s.io/v1): requests of the API server as far as they are judged, and their responses.
Old objects may be several MiB: of them only the metadata is decoded, and of a CRD what finds its objects."""

from typing import Annotated, Final, Literal

import msgspec

from service.admission.judgement import Denial
from service.kubernetes.decoding import UNDECODABLE
from service.kubernetes.objects import CRDS, NAMESPACES, NOTHING, ServedResource

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class UndecodableReview(ValueError):
    """The request, or the object in it, can't be decoded; the message says what is wrong."""


class ReviewedKind(msgspec.Struct, frozen=True):
    kind: str
    group: str = ""
    version: str = ""


class ReviewedResource(msgspec.Struct, frozen=True):
    resource: str
    group: str = ""
    version: str = ""

    @property
    def plural_and_group(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class ReviewedUser(msgspec.Struct, frozen=True):
    username: str = ""


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """`name` is empty in a deletecollection; the name is then in the old object."""

    uid: _Text
    operation: str
    resource: ReviewedResource
    kind: ReviewedKind
    name: str = ""
    namespace: str = ""
    user_info: ReviewedUser = ReviewedUser()
    dry_run: bool | None = None
    old_object: msgspec.Raw = NOTHING

    @property
    def about(self) -> Literal["namespace", "definition", "object"]:
        match self.resource.group, self.resource.resource:
            case (NAMESPACES.group, NAMESPACES.plural):
                return "namespace"
            case (CRDS.group, CRDS.plural):
                return "definition"
            case _:
                return "object"

    @property
    def served(self) -> ServedResource:
        """The resource as far as an Event about its object needs it."""
        return ServedResource(
            resource=self.resource.plural_and_group,
            group=self.kind.group,
            version=self.kind.version,
            plural=self.resource.resource,
            kind=self.kind.kind,
            namespaced=bool(self.namespace) and self.about == "object",
            status=False,
        )


class OldObject(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of the object that is to be deleted."""

    name: _Text
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class DefinitionNames(msgspec.Struct, frozen=True):
    plural: _Text
    kind: _Text


class DefinitionVersion(msgspec.Struct, frozen=True):
    name: _Text
    served: bool = False
    storage: bool = False


class DefinitionSpec(msgspec.Struct, frozen=True):
    group: _Text
    names: DefinitionNames
    scope: Literal["Namespaced", "Cluster"]
    versions: tuple[DefinitionVersion, ...]


class DefinitionCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: tuple[DefinitionCondition, ...] | None = None


class Definition(msgspec.Struct, frozen=True):
    """A CRD, as far as it says where its objects are."""

    spec: DefinitionSpec
    status: DefinitionStatus = DefinitionStatus()

    @property
    def resource(self) -> str:
        return f"{self.spec.names.plural}.{self.spec.group}"

    @property
    def established(self) -> bool:
        """It has no objects before it is; once it is, it remains so."""
        return any(one.type == "Established" and one.status == "True" for one in self.status.conditions or ())

    def served(self) -> ServedResource | None:
        """In the stored version if that is served, because its objects then need no conversion; None without any served
        version."""
        versions = sorted(self.spec.versions, key=lambda version: not version.storage)
        version = next((version.name for version in versions if version.served), "")
        if not version:
            return None
        return ServedResource(
            resource=self.resource,
            group=self.spec.group,
            version=version,
            plural=self.spec.names.plural,
            kind=self.spec.names.kind,
            namespaced=self.spec.scope == "Namespaced",
            status=False,
        )


class _DecodedReview(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: ReviewRequest


class _WithMetadata(msgspec.Struct):
    metadata: OldObject


_reviews: Final = msgspec.json.Decoder(_DecodedReview)
_metadata: Final = msgspec.json.Decoder(_WithMetadata)
_definitions: Final = msgspec.json.Decoder(Definition)


def decode_review(body: bytes) -> ReviewRequest:
    """Raises UndecodableReview."""
    try:
        review = _reviews.decode(body)
    except UNDECODABLE as error:
        raise UndecodableReview(f"not an {KIND} of {API_VERSION}: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise UndecodableReview(f"not an {KIND} of {API_VERSION}, but {review.kind} of {review.api_version}")
    return review.request


def decode_old_object(request: ReviewRequest) -> OldObject:
    """Raises UndecodableReview."""
    try:
        return _metadata.decode(request.old_object).metadata
    except UNDECODABLE as error:
        raise UndecodableReview(f"the object that is to be deleted can't be read from the review: {error}") from None


def decode_definition(request: ReviewRequest) -> Definition:
    """Raises UndecodableReview."""
    try:
        return _definitions.decode(request.old_object)
    except UNDECODABLE as error:
        raise UndecodableReview(f"the CRD that is to be deleted can't be read from the review: {error}") from None


def encode_answer(uid: str, denial: Denial | None) -> bytes:
    """kubectl prints the message of a denial behind `Error from server (Forbidden)`, as one line."""
    response: dict[str, object] = {"uid": uid, "allowed": denial is None}
    if denial is not None:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": " ".join(denial.message.splitlines())}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
