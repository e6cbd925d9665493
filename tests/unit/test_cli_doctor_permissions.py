"""The permission probe of `knell doctor` covers every Redis command that is used."""

import re
from pathlib import Path

from service.cli.doctor.redis_permissions import acl_name, concerns_a_command, probe_commands

ROOT = Path(__file__).parents[2]
IN_SCRIPTS = re.compile(r"""(?:redis\.p?call|spread)\('([A-Z]+)'(?:,\s*'([A-Z]+)')?""")
IN_PYTHON = re.compile(r"""(?:command|execute_command)\(\s*"([A-Z]+)"(?:,\s*"([A-Z]+)")?""")
IN_VIEWS = re.compile(r"""\("([A-Z]+)(?: ([A-Z]+))?",""")
WITH_SUBCOMMANDS = {"XGROUP", "XINFO"}
ASKED_ELSEWHERE = {"PING", "CONFIG"}
"""The doctor asks for these by themselves."""


def used() -> set[str]:
    found: set[str] = set()
    scripts = (ROOT / "service" / "engine" / "scripts").glob("*.lua")
    modules = [*(ROOT / "service" / "engine").rglob("*.py"), *(ROOT / "workers" / "runtime").rglob("*.py")]
    views = (ROOT / "service" / "engine" / "views").glob("*.py")
    for pattern, files in ((IN_SCRIPTS, scripts), (IN_PYTHON, modules), (IN_VIEWS, views)):
        for file in files:
            for name, first in pattern.findall(file.read_text()):
                if name not in ASKED_ELSEWHERE:
                    found.add(acl_name((name, first) if name in WITH_SUBCOMMANDS else (name,)))
    return found


def test_every_command_of_scripts_and_loops_is_tried() -> None:
    known = used()
    assert {"zadd", "xclaim", "evalsha", "xgroup|create", "xinfo|groups", "zrevrange"} <= known
    assert known <= {acl_name(command) for command in probe_commands("k")}


def test_every_probe_uses_only_temporary_keys() -> None:
    without_keys = {"time", "info", "scan"}
    for command in probe_commands("knell:{0}:doctor:1"):
        if acl_name(command) not in without_keys:
            assert any(str(word).startswith("knell:{0}:doctor:1:") for word in command), command


def test_command_and_key_permissions_are_distinguished_for_every_server_version() -> None:
    assert concerns_a_command("this user has no permissions to run the 'xadd' command")
    assert concerns_a_command("User limited has no permissions to run the 'xgroup|create' command")
    assert not concerns_a_command("No permissions to access a key")
    assert not concerns_a_command("this user has no permissions to access one of the keys used as arguments")
