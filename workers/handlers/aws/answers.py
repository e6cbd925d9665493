"""What an answer of AWS must have before it is believed: a list that is not there is not an empty one.
A proxy's page that happens to be well formed is an answer without anything in it, and would prove everything absent."""

from collections.abc import Mapping
from typing import Any

from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.operations import operation_of


def list_of(answer: Mapping[str, Any], key: str, service: str, operation: str) -> list[dict[str, Any]]:
    """The list under that key; AWS sends it also when it is empty. `service` and `operation` as botocore names them."""
    found = answer.get(key)
    if not isinstance(found, list):
        action = operation_of(service, operation).action
        raise AwsError("unreadable", action, "NoList", f"an answer without {key} is no empty list")
    return found
