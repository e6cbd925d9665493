"""README, CONTRIBUTING, CHANGELOG and docs/ against the program: settings load, commands parse, files exist.
Planted mistakes show that each check can fail."""

from pathlib import Path

import pytest

from tests.documents import (
    ROOT,
    CommandLine,
    RedisKey,
    command_lines,
    documents,
    problems_of_commands,
    problems_of_files,
    problems_of_make,
    problems_of_programs,
    problems_of_settings,
    problems_of_yaml,
    redis_keys,
)

each_document = pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))


@each_document
def test_every_yaml_block_is_a_whole_settings_file(path: Path) -> None:
    assert problems_of_yaml(path.read_text()) == []


@each_document
def test_every_setting_that_is_named_exists_and_takes_that_value(path: Path) -> None:
    assert problems_of_settings(path.read_text()) == []


@each_document
def test_every_knell_command_is_understood_by_the_command_line(path: Path) -> None:
    assert problems_of_commands(path.read_text()) == []


@each_document
def test_every_make_target_and_variable_is_in_the_makefile(path: Path) -> None:
    assert problems_of_make(path.read_text()) == []


@each_document
def test_no_shell_block_has_a_program_that_no_test_knows(path: Path) -> None:
    assert problems_of_programs(path.read_text()) == []


@each_document
def test_every_file_that_is_named_is_there(path: Path) -> None:
    assert problems_of_files(path.read_text(), path.parent) == []


def test_the_documents_have_what_is_checked_here() -> None:
    readme = (ROOT / "README.md").read_text()
    assert {one.words[1] for one in command_lines(readme, "knell")} >= {"doctor", "role", "watch", "work", "status"}
    assert "make demo" in {str(one) for one in command_lines(readme, "make")}
    assert len(redis_keys(readme)) > 20
    assert {path.name for path in documents()} >= {"README.md", "CONTRIBUTING.md", "aws.md", "azure.md"}


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("redis: {shard: 4}", "redis.shard (from the block): unknown key"),
        ("redis: {shards: many}", "redis.shards"),
        ("sources: {widgets: {collector: simulated}}", "sources.widgets.resource (from the block): must be given"),
        ("features: {ExternalResourcesGC: true}", "features.ExternalResourcesGC"),
        ("redis: {url: [", "cannot be read as YAML"),
        ("- redis", "the file"),
    ],
)
def test_a_wrong_yaml_block_is_found(planted: str, complaint: str) -> None:
    (problem,) = problems_of_yaml(f"# Title\n\nText.\n\n```yaml\n{planted}\n```\n")
    assert problem.startswith("line 6: ")
    assert complaint in problem


@pytest.mark.parametrize(
    "planted",
    ["`redis.shard`", "`redis.shards: many`", "`azure.sweep.age.most`", "`redis.mode:\nclusterd`", "`redis: {a: 1}`"],
)
def test_a_wrong_setting_in_prose_is_found(planted: str) -> None:
    assert len(problems_of_settings(f"Set {planted}, and `redis.shards: 4` or `azure.sweep.age`.")) == 1


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("knell statsu", "No such command 'statsu'"),
        ("knell jobs lst", "No such command 'lst'"),
        ("knell status --wach", "No such option"),
        ("knell jobs list --state gone", "'gone' is not one of"),
        ("knell reshard --to many", "'many' is not a valid integer"),
        ("knell reshard", "Missing option '--to'"),
        ("knell plan", "Missing argument"),
        ("knell doctor now", "unexpected extra argument"),
        ("echo y | knell uninstall --ye", "No such option"),
        ("knell status  # or `knell statsu`", "No such command 'statsu'"),
        ("knell jobs list  # ... show, retrry", "No such command 'retrry'"),
    ],
)
def test_a_wrong_command_in_a_shell_block_is_found(planted: str, complaint: str) -> None:
    (problem,) = problems_of_commands(f"Text.\n\n```sh\nknell status\n{planted}\n```\n")
    assert problem.startswith("line 5: ")
    assert complaint in problem


@pytest.mark.parametrize("planted", ["knell statsu", "knell gc enable|disble", "knell gc\nenabel", "knell gc --task"])
def test_a_wrong_command_in_prose_is_found(planted: str) -> None:
    assert len(problems_of_commands(f"Use `{planted}`.")) == 1


def test_older_entries_of_a_changelog_may_mention_a_command_that_was_removed() -> None:
    older = "- `knell local aws|azure` runs a stand-in; `knell status` shows it.\n"
    assert len(problems_of_commands(older)) == 2
    assert problems_of_commands(f"- Removed: `knell local`,\n  see `make demo`.\n{older}") == []
    assert len(problems_of_commands(f"- Removed: `knell local`.\n{older}- `knell statsu` is new.\n")) == 1


def test_a_command_that_is_listed_as_removed_must_not_exist() -> None:
    assert problems_of_commands("- Removed: `knell status`.\n- Other.\n") == [
        "knell status is listed as removed, and exists"
    ]


def test_a_command_that_is_only_mentioned_may_leave_out_values() -> None:
    assert (
        problems_of_commands("`knell gc enable`, `knell gc configure --task`, `knell role | kubectl apply -f -`") == []
    )


def test_commands_do_nothing_while_they_are_checked() -> None:
    # It would need a Redis, and would say that none is there.
    assert problems_of_commands("```sh\nknell reshard --to 4 --yes\n```\n") == []


@pytest.mark.parametrize("planted", ["make tset", "make test ARG=1", "make test checks"])
def test_a_wrong_use_of_make_is_found(planted: str) -> None:
    assert len(problems_of_make(f"`{planted}`")) == 1
    assert len(problems_of_make(f"```sh\nmake test ARGS='-k lease'\n{planted}  # as before\n```\n")) == 1


def test_an_unknown_program_in_a_shell_block_is_found() -> None:
    assert problems_of_programs("```sh\nknell role | kubctl apply -f -\n```\n") == [
        "line 2: kubctl is checked by no test"
    ]


@pytest.mark.parametrize("planted", ["`docs/aw.md`", "[AWS](docs/aw.md)", "`deploy/aws/iam-policy.yaml`"])
def test_a_file_that_is_not_there_is_found(planted: str) -> None:
    assert len(problems_of_files(f"See {planted}, `docs/aws.md` and [this](README.md#running-it).")) == 1


def test_the_table_of_keys_is_read_with_its_shortened_names() -> None:
    table = "| key | type | says |\n|---|---|---|\n| `knell:{0}:lane:NAME`, `...:urgent` | sorted set | x |\n\n"
    assert redis_keys(table) == [
        RedisKey("knell:{0}:lane:NAME", "sorted set"),
        RedisKey("knell:{0}:lane:NAME:urgent", "sorted set"),
    ]
    also = table.replace("lane:NAME`, `...:urgent", "open`, `held").replace("sorted set", "sorted sets")
    assert redis_keys(also) == [RedisKey("knell:{0}:open", "sorted set"), RedisKey("knell:{0}:held", "sorted set")]


def test_alternatives_and_pipes_are_commands_of_their_own() -> None:
    found = command_lines("`knell jobs list|show` and `knell role | kubectl apply -f -`", "knell")
    assert found == [
        CommandLine(("knell", "jobs", "list"), 1, whole=False),
        CommandLine(("knell", "jobs", "show"), 1, whole=False),
        CommandLine(("knell", "role"), 1, whole=False),
    ]
