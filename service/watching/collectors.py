"""The collectors as the watch side knows them: by name, with what of an object later recognises its resources.
What a collector removes, and how, is the workers' business; here nothing outside the cluster is known."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from service.contract.aws import CAPA
from service.contract.azure import KARPENTER_AZURE, claim_in
from service.settings import Problem, SettingsError, SourceSettings

Recognise = Callable[[bytes], str]
"""A whole object as text, to a compact text that is kept when the object is gone. Raises Unrecognisable."""


class Unrecognisable(ValueError):
    """The object does not say what it owns in a way that its collector understands; what concerns it is held."""


class _Target(msgspec.Struct, frozen=True, omit_defaults=True):
    account: str
    id: str
    region: str = "here"
    chain: str = "main"
    stage: int = 0
    strategy: Literal["required", "best-effort"] = "required"


class _Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    owner: str = ""
    targets: tuple[_Target, ...] = ()


class _Object(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_object: Final = msgspec.json.Decoder(_Object)


def _nothing(_raw: bytes) -> str:
    return ""


def _simulated(raw: bytes) -> str:
    """The targets that the object's spec names, and the owner that they are tagged with."""
    try:
        return msgspec.json.encode(_object.decode(raw).spec).decode()
    except msgspec.DecodeError as error:
        raise Unrecognisable(f"the spec does not name its targets as the simulated provider wants: {error}") from None


def _karpenter(raw: bytes) -> str:
    try:
        return msgspec.json.encode(claim_in(raw)).decode()
    except msgspec.DecodeError as error:
        raise Unrecognisable(f"it is no NodeClaim as Karpenter writes them: {error}") from None


COLLECTORS: Final[Mapping[str, Recognise]] = {
    # Owns nothing outside: its objects are held back, judged, and released.
    "none": _nothing,
    "simulated": _simulated,
    # What a cluster has on AWS is recognised by the live object, which is held back until all of it is gone.
    CAPA: _nothing,
    KARPENTER_AZURE: _karpenter,
}


def recogniser(source: str, settings: SourceSettings) -> Recognise:
    """Raises SettingsError where the settings name a collector that does not exist."""
    check_collectors({source: settings})
    return COLLECTORS[settings.collector]


def check_collectors(sources: Mapping[str, SourceSettings]) -> None:
    """All unknown names at once, as every fault of the settings is told."""
    known = ", ".join(sorted(COLLECTORS))
    problems = [
        Problem(f"sources.{name}.collector", f"{source.collector!r} given; allowed: {known}")
        for name, source in sources.items()
        if source.collector not in COLLECTORS
    ]
    if problems:
        raise SettingsError(problems)
