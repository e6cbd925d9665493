"""Output of the command line: no control characters, no credentials, readable times, tables that fit."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from service.cli import output
from service.cli.addresses import short_ids
from service.cli.main import RootOptions
from service.cli.output import clean, moment, plain, relative, span
from service.cli.session import listing_option, output_option
from service.cli.table_layout import folded, shortened
from service.contract.resource_names import fits_kind, full_kind, short_kind

NOON = datetime(2030, 5, 17, 12, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(seconds=1.26), "1.3s"),
        (timedelta(seconds=59), "59s"),
        (timedelta(minutes=3, seconds=5), "3m5s"),
        (timedelta(hours=2), "2h"),
        (timedelta(hours=2, seconds=59), "2h"),
        (timedelta(days=3, hours=4, minutes=5), "3d4h"),
        (timedelta(minutes=-3), "-3m"),
        (None, ""),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(length: timedelta | None, words: str) -> None:
    assert span(length) == words


def test_times_are_shown_in_utc_and_relative_to_the_server() -> None:
    assert moment(NOON) == "2030-05-17 12:00:00.123Z"
    assert relative(NOON, NOON + timedelta(minutes=2)) == "2m ago"
    assert relative(NOON, NOON - timedelta(minutes=2)) == "in 2m"
    assert (moment(None), relative(None, NOON), relative(NOON, None)) == ("", "", "")


def test_control_characters_are_escaped_and_credentials_masked() -> None:
    assert clean("a\x1b[31mred\x07\x9b") == "a\\x1b[31mred\\x07\\x9b"
    assert clean("https://me:word@host/ password=word") == "https://***@host/ password=***"


def test_json_has_numbers_for_durations_and_masks_every_text_at_any_depth() -> None:
    class Inner(msgspec.Struct):
        at: datetime
        wait: timedelta
        said: list[str]
        fields: dict[str, str]

    picture = {"one": Inner(NOON, timedelta(milliseconds=1500), ["redis://u:word@h/0"], {"client_secret": "word"})}
    assert msgspec.json.decode(msgspec.json.encode(plain(picture))) == {
        "one": {
            "at": "2030-05-17T12:00:00.123456Z",
            "wait": 1.5,
            "said": ["redis://***@h/0"],
            "fields": {"client_secret": "***"},
        }
    }


# ---- tables

COLUMNS = ("id", "kind", "object", "age", "lane", "reason")
LONG = "the settings name no account for this cluster, so that nobody knows where its balancers are; set aws.account"
LANE = "aws/123456789012/eu-west-1/ec2.DeleteSecurityGroup"
PLANE = "awsmanagedcontrolplane"
ROWS = [
    ("4b1f9c2e", "awscluster", "shop/prod", "3m5s", LANE, LONG),
    ("7c9e6679", PLANE, "a-namespace-of-a-team/a-cluster-with-quite-a-long-name", "12d3h", LANE, ""),
]


def shown(rows: Sequence[Sequence[object]], *words: str) -> Result:
    """Output of a command with one table, without a terminal."""

    @click.command()
    @output_option
    def command(form: str) -> None:
        del form
        output.show([output.table("t", COLUMNS, rows, numbers=("age",), wide=("lane",), cut="reason")])

    return CliRunner().invoke(command, list(words), obj=RootOptions())


def test_a_table_fits_80_columns_and_the_reason_is_cut_after_a_word() -> None:
    lines = shown(ROWS[:1]).stdout.splitlines()
    assert max(map(len, lines)) == 80
    (row,) = (line for line in lines if line.startswith("4b1f9c2e"))
    reason = row.partition("3m5s")[2].strip()
    assert reason.endswith("…")
    assert LONG.startswith(f"{reason[:-1]} ")
    assert len(reason) > 25
    assert "lane" not in lines[1]


def test_names_that_have_no_room_are_folded_between_their_parts() -> None:
    lines = shown(ROWS).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert {"awscluster", "awsmanagedcontrolplane", "a-namespace-of-a-team/", "12d3h", "7c9e6679"} <= words


def test_the_wide_form_has_every_column_whole_and_a_row_on_a_line() -> None:
    out = shown(ROWS, "--output", "wide").stdout
    for row in ROWS:
        (line,) = (line for line in out.splitlines() if line.startswith(row[0]))
        assert all(cell in line for cell in row)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 80, 132, 200])
def test_a_table_is_as_wide_as_the_terminal_at_most(width: int) -> None:
    screen = Console(file=Terminal(), width=width, color_system=None, legacy_windows=False)
    screen.print(output.table("t", COLUMNS, ROWS[:1], wide=("lane",), cut="reason"))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert (LONG in lines[3]) == (width == 200)


def test_facts_are_folded_between_words_and_identifiers_between_their_parts() -> None:
    parts = ("0f8fad5b-d9cb-469f-a165-70867728950e", "awsclusters.infrastructure.cluster.x-k8s.io")
    identity = "/".join([*parts, "7c9e6679-7425-40de-944b-e07fc1f90ae7", "1"])
    assert folded(identity, 60) == [
        "0f8fad5b-d9cb-469f-a165-70867728950e/",
        "awsclusters.infrastructure.cluster.x-k8s.io/",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7/1",
    ]
    for width in range(1, 120):
        assert all(0 < len(line) <= width for line in folded(LONG, width))
        assert "".join(folded(identity, width)) == identity
    longest = max(map(len, LONG.split()))
    assert " ".join(folded(LONG, longest)) == LONG


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("as long as this", 15, "as long as this"),
        ("as long as this", 14, "as long as…"),
        ("first, second", 10, "first…"),
        ("one\nword", 20, "one word"),
        ("unbreakable", 6, "unbre…"),
    ],
)
def test_a_reason_is_cut_after_a_word(text: str, width: int, cut: str) -> None:
    assert shortened(text, width) == cut


def test_names_are_only_printed_by_commands_that_list_what_has_names() -> None:
    answer = CliRunner().invoke(
        click.command()(output_option(lambda form: click.echo(form))), obj=RootOptions(output="name")
    )
    assert (answer.exit_code, "no output 'name', only table, wide, json" in answer.stderr) == (2, True)
    answer = CliRunner().invoke(click.command()(listing_option(lambda form: click.echo(form))), ["-o", "name"])
    assert (answer.exit_code, answer.stdout) == (0, "name\n")


# ---- kinds and short ids


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("awsclusters.infrastructure.cluster.x-k8s.io", "awscluster"),
        ("awsmanagedcontrolplanes.controlplane.cluster.x-k8s.io", "awsmanagedcontrolplane"),
        ("nodeclaims.karpenter.sh", "nodeclaim"),
        ("policies.iam.services.k8s.aws", "policy"),
        ("gateways.networking.k8s.io", "gateway"),
        ("ingresses.networking.k8s.io", "ingress"),
        ("ec2nodeclasses.karpenter.k8s.aws", "ec2nodeclass"),
        ("things", "thing"),
    ],
)
def test_a_kind_is_accepted_in_every_form_of_kubectl(resource: str, kind: str) -> None:
    plural, dot, group = resource.partition(".")
    assert short_kind(resource) == kind
    assert full_kind(resource) == f"{kind}{dot}{group}"
    for word in (kind, kind.upper(), plural, plural.title(), resource, full_kind(resource)):
        assert fits_kind(word, resource)
    for word in ("", kind[:-1], f"{kind}x", f"{plural}.other.org", f"{kind}.{group[1:]}x"):
        assert not fits_kind(word, resource)


def test_the_beginning_of_a_group_will_do() -> None:
    for word in ("bucket.s3", "Buckets.S3.services", "bucket.s3.services.k8s.aws"):
        assert fits_kind(word, "buckets.s3.services.k8s.aws")
    for word in ("bucket.s", "bucket.services.k8s.aws", "bucket.s3.services.k8s.aws.x", "bucket.s3c"):
        assert not fits_kind(word, "buckets.s3.services.k8s.aws")


def test_a_short_id_is_as_long_as_needed_to_be_unique() -> None:
    alike = ("7c9e6679-7425", "7c9e6679-8888", "0f8fad5b-d9cb", "a")
    assert short_ids(alike) == {
        "7c9e6679-7425": "7c9e6679-7", "7c9e6679-8888": "7c9e6679-8", "0f8fad5b-d9cb": "0f8fad5b", "a": "a",
    }  # fmt: skip
    assert short_ids(["orphan.0f8fad5b-d9cb-469f.rg.pool-1", "orphan.0f8fad5b-d9cb-469f.rg.pool-2"]) == {}
