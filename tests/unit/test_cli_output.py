"""What the command line prints: nothing that could play with a terminal, no credential, times that can be read."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from service.cli.output import clean, moment, plain, relative, span

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
def test_a_duration_is_told_in_its_two_largest_units(length: timedelta | None, words: str) -> None:
    assert span(length) == words


def test_times_are_told_in_utc_and_relative_to_the_server() -> None:
    assert moment(NOON) == "2030-05-17 12:00:00.123Z"
    assert relative(NOON, NOON + timedelta(minutes=2)) == "2m ago"
    assert relative(NOON, NOON - timedelta(minutes=2)) == "in 2m"
    assert (moment(None), relative(None, NOON), relative(NOON, None)) == ("", "", "")


def test_control_characters_are_spelt_out_and_credentials_masked() -> None:
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
