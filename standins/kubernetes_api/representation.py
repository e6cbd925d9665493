"""Representation of objects in responses: whole, in the requested version, or metadata only.
Stored bytes are embedded without decoding, unless Events need translation."""

from dataclasses import dataclass
from typing import Any

from standins.kubernetes_api import events, statuses
from standins.kubernetes_api.api_resources import EVENTS, ApiResource
from standins.kubernetes_api.documents import decode, encode, metadata

_META_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Representation:
    resource: ApiResource
    version: str
    partial: bool = False

    def whole(self, raw: bytes) -> bytes:
        """A single object, or one in a watch event."""
        if self.partial:
            return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":' + metadata(raw) + b"}"
        return self._opening() + self._translated(raw)[1:]

    def item(self, raw: bytes) -> bytes:
        """An object in a list, where built-in kinds omit kind and apiVersion."""
        if self.partial or self.resource.custom:
            return self.whole(raw)
        return self._translated(raw)

    def bookmark(self, version: int) -> bytes:
        kind = ("PartialObjectMetadata", _META_VERSION) if self.partial else self._kind(self.resource.kind)
        return encode({"kind": kind[0], "apiVersion": kind[1], "metadata": {"resourceVersion": str(version)}})

    def listed(self, raws: list[bytes], meta: dict[str, Any]) -> bytes:
        kind = ("PartialObjectMetadataList", _META_VERSION) if self.partial else self._kind(self.resource.lists_as)
        head = encode({"kind": kind[0], "apiVersion": kind[1], "metadata": meta})
        return head[:-1] + b',"items":[' + b",".join([self.item(raw) for raw in raws]) + b"]}"

    def _opening(self) -> bytes:
        kind, api_version = self._kind(self.resource.kind)
        return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode()

    def _kind(self, kind: str) -> tuple[str, str]:
        return kind, self.resource.api_version(self.version)

    def _translated(self, raw: bytes) -> bytes:
        if self.resource.table == EVENTS.stored_in:
            return encode(events.from_core(decode(raw)))
        return raw


def wants_partial(accept: str) -> bool:
    """The first accepted media type that can be served decides. Raises StatusError (406) when none can."""
    clauses = [clause.strip() for clause in accept.split(",") if clause.strip()] or ["*/*"]
    for clause in clauses:
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        if media not in ("application/json", "application/*", "*/*"):
            continue
        form = parameters.get("as", "")
        if not form:
            return False
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList") and parameters.get("v", "v1") == "v1":
            return True
    raise statuses.not_acceptable()
