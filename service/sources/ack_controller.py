"""Deletion policy of an ACK controller, by the arguments and environment of its Deployment. A controller that retains
leaves resources behind on purpose."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from service.policy.decisions import DefaultPolicy, quoted
from service.sources.declaration import ReadCluster

DEPLOYMENTS: Final = "deployments.apps"
FLAG: Final = "--deletion-policy"

_VARIABLE: Final = re.compile(r"\$(\$|\(([A-Za-z0-9_.-]+)\))")
_CHART_LABEL: Final = "app.kubernetes.io/name"

Word = Literal["delete", "retain"]
_WORDS: Final[Mapping[str, Word]] = {"delete": "delete", "retain": "retain"}


class _AckVariable(msgspec.Struct, frozen=True):
    name: str = ""
    # Absent if it comes from elsewhere.
    value: str | None = None
    value_from: dict[str, Any] | None = msgspec.field(default=None, name="valueFrom")


class _AckContainer(msgspec.Struct, frozen=True):
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[_AckVariable, ...] | None = None


class _AckPodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_AckContainer, ...] = ()


class _AckPodTemplate(msgspec.Struct, frozen=True):
    spec: _AckPodSpec = _AckPodSpec()


class _AckDeploymentSpec(msgspec.Struct, frozen=True):
    template: _AckPodTemplate = _AckPodTemplate()


class _AckDeploymentMetadata(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _AckDeployment(msgspec.Struct, frozen=True):
    metadata: _AckDeploymentMetadata = _AckDeploymentMetadata()
    spec: _AckDeploymentSpec = _AckDeploymentSpec()


_deployment: Final = msgspec.json.Decoder(_AckDeployment)


class ControllerFound(NamedTuple):
    """A controller: its Deployment, and the policy that it starts with. Without a policy, `fault` says why."""

    name: str
    word: Word | None
    fault: str = ""


async def read_controller_policy(cluster: ReadCluster, namespace: str, service: str) -> DefaultPolicy:
    """Raises CannotRead, or ClusterError."""
    found = controllers(await cluster.list(DEPLOYMENTS, namespace), service)
    if not found:
        return DefaultPolicy("", f"there is no controller of ACK for {service} in namespace {namespace}")
    if unclear := next((one for one in found if one.word is None), None):
        return DefaultPolicy("", f"Deployment {namespace}/{unclear.name}: {unclear.fault}")
    if len({one.word for one in found}) > 1:
        words = " and ".join(f"{one.name} ({one.word})" for one in found)
        return DefaultPolicy("", f"the controllers of {service} in namespace {namespace} disagree: {words}")
    word = found[0].word or ""
    return DefaultPolicy(word, f"{FLAG} of ACK's Deployment {namespace}/{found[0].name} says {word}")


def controllers(deployments: Sequence[bytes], service: str) -> list[ControllerFound]:
    """The controllers of a service, by the names of their images or the label of ACK's charts."""
    found: list[ControllerFound] = []
    for raw in deployments:
        try:
            one = _deployment.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # It may be the controller.
            found.append(ControllerFound("of unknown name", None, f"it can't be read: {error}"))
            continue
        containers = one.spec.template.spec.containers
        ours = [each for each in containers if _image_name(each.image) == f"{service}-controller"]
        if not ours and (one.metadata.labels or {}).get(_CHART_LABEL) == f"{service}-chart":
            ours = list(containers)
        found += [_controller(one.metadata.name, each) for each in ours[:1]]
    return found


def _image_name(image: str) -> str:
    return re.split("[:@]", image.rpartition("/")[2])[0]


def _controller(name: str, container: _AckContainer) -> ControllerFound:
    """ACK's own default is to delete. The last flag counts, as for ACK; an unknown value is no policy."""
    said = list(_flag_values([*(container.command or ()), *(container.args or ())]))
    if not said:
        return ControllerFound(name, "delete")
    value = _expanded(said[-1], container.env or ())
    if value is None:
        return ControllerFound(name, None, f"{FLAG} is {quoted(said[-1])}, whose value the Deployment does not show")
    word = _WORDS.get(value)
    return ControllerFound(name, word, "" if word else f"{FLAG} is {quoted(value)}; known are delete and retain")


def _flag_values(words: Sequence[str]) -> Iterator[str]:
    """The value follows after `=` or as the next word."""
    following = False
    for word in words:
        if following:
            yield word
            following = False
            continue
        name, equals, value = word.partition("=")
        if name == FLAG:
            if equals:
                yield value
            following = not equals
    if following:
        yield ""


def _expanded(text: str, env: Sequence[_AckVariable]) -> str | None:
    """With the variables that Kubernetes replaces; None if the value of one is not in the Deployment."""
    # A later variable of a name replaces an earlier one.
    values = {one.name: (one.value or "") if one.value_from is None else None for one in env}
    unknown = False

    def replaced(match: re.Match[str]) -> str:
        nonlocal unknown
        if match[1] == "$":
            return "$"
        value = values.get(match[2])
        unknown = unknown or value is None
        return value or ""

    found = _VARIABLE.sub(replaced, text)
    return None if unknown else found
