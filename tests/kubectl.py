"""Runs kubectl commands that are named in messages of the service, as an operator would.
With a real API server it runs the real kubectl; else it sends `annotate` and `patch` as kubectl does."""

import re
import shlex

import msgspec

from standins.controlplane import ControlPlane
from tests.api_servers import TestApi
from tests.kube import Crd


def command_in(message: str) -> str:
    """The one command that a message names."""
    found: list[str] = re.findall(r"`(kubectl [^`]+)`", message)
    assert len(found) == 1, message
    return found[0]


def carry_out(api: TestApi, crd: Crd, command: str) -> None:
    """`crd` is the kind of the object that the command is about."""
    words = shlex.split(command)
    if isinstance(api.server, ControlPlane):
        api.server.kubectl(*words[1:])
        return
    verb, resource, name, flag, namespace, *rest = words[1:]
    assert (resource, flag) == (crd.resource, "-n")
    if verb == "annotate":
        key, _, value = rest[0].partition("=")
        body: object = {"metadata": {"annotations": {key: value}}}
    else:
        assert (verb, rest[:3]) == ("patch", ["--type", "merge", "-p"])
        body = msgspec.json.decode(rest[3])
    api.kube.patch(crd.path(namespace, name), body)
