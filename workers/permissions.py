"""IAM policy of sources with resources on AWS, merged from those of their collectors. `python -m workers.permissions
COLLECTOR FILE` writes it for everything that one collector can be set to do, `knell role --aws-policy` prints what
given settings need. A collector's module is imported by the name in its source's declaration."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from service.settings import Settings
from service.sources.registry import known_sources, source_named


def aws_policy(settings: Settings | None = None) -> dict[str, Any]:
    """The IAM policy for the collectors of the settings' sources; without a source on AWS, for all that have one.
    Without settings it is for all of them, and everything that settings can allow. Statements of the same name are
    merged; raises ValueError if they differ in more than their actions."""
    declared = [source for source in known_sources() if source.aws_policy]
    used = set[str]() if settings is None else {source.collector for source in settings.sources.values()}
    chosen = [source for source in declared if source.name in used] or declared
    made: list[dict[str, Any]] = [import_module(source.aws_policy).aws_policy(settings) for source in chosen]
    statements: dict[str, dict[str, Any]] = {}
    for one in (statement for document in made for statement in document["Statement"]):
        before = statements.get(one["Sid"], one)
        merged = one | {"Action": sorted({*before["Action"], *one["Action"]})}
        if before | {"Action": merged["Action"]} != merged:
            raise ValueError(f"the IAM policies of {', '.join(source.name for source in chosen)} have statements "
                             f"{one['Sid']} with different conditions, which can't be merged")  # fmt: skip
        statements[one["Sid"]] = merged
    return made[0] | {"Statement": list(statements.values())}


def policy_of_collector(name: str) -> dict[str, Any]:
    """For everything that the settings of one collector can allow."""
    document: dict[str, Any] = import_module(source_named(name).aws_policy).aws_policy(None)
    return document


def as_text(policy: dict[str, Any]) -> str:
    return json.dumps(policy, indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(as_text(policy_of_collector(sys.argv[1])))
