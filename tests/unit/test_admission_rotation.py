"""Rotation of the webhook's certificate, step by step, in what its Secret contains. Every step is taken by another
replica, which knows nothing but the Secret."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from service.admission.certificate_rotation import (
    EMPTY,
    MADE,
    RotationTimes,
    Step,
    StoredCertificates,
    bundle,
    decode_secret,
    due_step,
    encode_secret,
    forgotten,
    prepared,
    replaced,
    switched,
    trusted_since,
    without_nulls,
)
from service.admission.certificates import KeyedCertificate, covers, make_certificate, read_certificate

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
CALLED = "knell-webhook.knell.svc"
NAMES = (CALLED, "knell-webhook.knell")
TIMES = RotationTimes()
LONG = timedelta(days=80)
SECOND = timedelta(seconds=1)


class SecretFixture:
    """The Secret as the API server keeps it. Each look at it is that of a new replica."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {"metadata": {"annotations": {"other": "kept"}}, "data": {"other": "a2VwdA=="}}

    @property
    def stored(self) -> StoredCertificates:
        return decode_secret(msgspec.json.encode(self.document))

    def write(self, stored: StoredCertificates) -> None:
        """As a merge patch does."""
        patch = encode_secret(stored)
        for known, changes in (
            (self.document["metadata"]["annotations"], patch["metadata"]["annotations"]),
            (self.document["data"], patch["data"]),
        ):
            for key, value in changes.items():
                known.pop(key, None)
                if value is not None:
                    known[key] = value

    def due(self, now: datetime) -> Step:
        return due_step(self.stored, CALLED, now, TIMES)

    def serves_trusted(self, now: datetime, *others: KeyedCertificate) -> bool:
        """The CAs of the current certificate, and of those that late replicas serve, are in the bundle."""
        known = bundle(self.stored, now)
        return all(one.authority in known for one in (self.stored.current, *others))


@pytest.fixture
def secret() -> SecretFixture:
    """With a certificate that was made now."""
    made = SecretFixture()
    made.write(replaced(EMPTY, b"", NAMES, NOW, TIMES))
    return made


def test_an_empty_secret_gets_a_certificate_and_keeps_everything_else() -> None:
    secret = SecretFixture()
    assert secret.due(NOW) == "replace"
    secret.write(replaced(secret.stored, b"", NAMES, NOW, TIMES))
    assert secret.due(NOW) == "none"
    assert secret.document["metadata"]["annotations"] == {"other": "kept", MADE: "self-made"}
    assert set(secret.document["data"]) == {"other", "tls.crt", "tls.key", "ca.crt"}
    assert bundle(secret.stored, NOW) == secret.stored.current.authority


def test_a_certificate_is_left_alone_until_a_third_of_its_life_is_left(secret: SecretFixture) -> None:
    due = read_certificate(secret.stored.current.certificate).expires - TIMES.renewal
    assert secret.due(due - SECOND) == "none"
    assert secret.due(due) == "prepare"


def test_a_whole_rotation_goes_step_by_step_and_what_is_served_is_always_trusted(secret: SecretFixture) -> None:
    now, old = NOW + LONG, secret.stored.current
    assert secret.due(now) == "prepare"
    secret.write(prepared(secret.stored, NAMES, now, TIMES))
    assert secret.stored.current == old
    following = secret.stored.next
    assert following is not None
    assert bundle(secret.stored, now) == old.authority + following.authority

    assert secret.due(now) == "trust"
    secret.write(trusted_since(secret.stored, now))
    assert secret.due(now + TIMES.settling - SECOND) == "none"

    now += TIMES.settling
    assert secret.due(now) == "switch"
    secret.write(switched(secret.stored, now, TIMES))
    assert (secret.stored.current, secret.stored.next) == (following, None)
    assert bundle(secret.stored, now) == following.authority + old.authority
    assert secret.serves_trusted(now, old)
    assert secret.due(now + TIMES.overlap - SECOND) == "none"

    now += TIMES.overlap
    assert secret.due(now) == "forget"
    secret.write(forgotten(secret.stored))
    assert bundle(secret.stored, now) == following.authority
    assert secret.due(now) == "none"
    assert set(secret.document["data"]) == {"other", "tls.crt", "tls.key", "ca.crt"}
    assert set(secret.document["metadata"]["annotations"]) == {"other", MADE}


def test_each_step_survives_a_long_pause_behind_it(secret: SecretFixture) -> None:
    """As after a crash of all replicas, with the current certificate still valid."""
    now, due = NOW + timedelta(days=61), []
    for _ in range(4):
        now += timedelta(days=3)
        due.append(secret.due(now))
        stored = secret.stored
        match due[-1]:
            case "prepare":
                secret.write(prepared(stored, NAMES, now, TIMES))
            case "trust":
                secret.write(trusted_since(stored, now))
            case "switch":
                secret.write(switched(stored, now, TIMES))
            case "forget":
                secret.write(forgotten(stored))
        assert secret.serves_trusted(now)
    assert due == ["prepare", "trust", "switch", "forget"]


def test_a_pause_beyond_its_end_makes_a_certificate_at_once_in_any_state(secret: SecretFixture) -> None:
    now = NOW + LONG
    states = [secret.stored]
    states.append(prepared(states[-1], NAMES, now, TIMES))
    states.append(trusted_since(states[-1], now))
    late = NOW + timedelta(days=91)
    for stored in states:
        assert due_step(stored, CALLED, late, TIMES) == "replace"
        fresh = replaced(stored, bundle(stored, late), NAMES, late, TIMES)
        assert due_step(fresh, CALLED, late, TIMES) == "none"
        assert fresh.next is None


def test_what_the_api_server_trusts_stays_trusted_for_a_while_when_a_certificate_is_replaced(
    secret: SecretFixture,
) -> None:
    """Replicas that have not read the Secret again serve the earlier certificate."""
    old, trusted = secret.stored.current, bundle(secret.stored, NOW)
    secret.document["data"] = {}
    assert secret.due(NOW) == "replace"
    secret.write(replaced(secret.stored, trusted, NAMES, NOW, TIMES))
    assert secret.stored.current != old
    assert secret.serves_trusted(NOW, old)
    assert secret.due(NOW + TIMES.overlap - SECOND) == "none"
    assert secret.due(NOW + TIMES.overlap) == "forget"


@pytest.mark.parametrize("value", ["", "?", "d29yZHM="], ids=["empty", "no base64", "no PEM"])
@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
def test_a_damaged_secret_is_replaced(secret: SecretFixture, key: str, value: str) -> None:
    secret.document["data"][key] = value
    assert secret.due(NOW) == "replace"
    secret.write(replaced(secret.stored, b"", NAMES, NOW, TIMES))
    assert secret.due(NOW) == "none"


def test_a_secret_with_the_key_of_another_certificate_is_replaced(secret: SecretFixture) -> None:
    secret.document["data"]["tls.key"] = base64.b64encode(make_certificate(NAMES, NOW, LONG).key).decode()
    assert secret.due(NOW) == "replace"


def test_a_next_certificate_that_is_damaged_is_made_again(secret: SecretFixture) -> None:
    secret.write(trusted_since(prepared(secret.stored, NAMES, NOW, TIMES), NOW))
    for key in ("next-tls.crt", "next-tls.key", "next-ca.crt"):
        kept = secret.document["data"][key]
        secret.document["data"][key] = "d29yZHM="
        assert secret.due(NOW + LONG) == "prepare"
        secret.document["data"][key] = kept
    secret.document["data"]["next-tls.key"] = ""
    secret.write(prepared(secret.stored, NAMES, NOW, TIMES))
    assert secret.stored.next_trusted is None
    assert secret.due(NOW) == "trust"


def test_replicas_with_old_and_new_settings_do_not_replace_each_others_certificate(secret: SecretFixture) -> None:
    renamed = "door.knell.svc"
    assert due_step(secret.stored, renamed, NOW, TIMES) == "replace"
    secret.write(replaced(secret.stored, b"", [renamed], NOW, TIMES))
    assert covers(read_certificate(secret.stored.current.certificate).names, renamed)
    for called in (renamed, CALLED):
        assert due_step(secret.stored, called, NOW, TIMES) == "none"
    secret.write(prepared(secret.stored, [renamed], NOW, TIMES))
    assert secret.due(NOW) == "prepare"
    secret.write(prepared(secret.stored, NAMES, NOW, TIMES))
    for called in (renamed, CALLED):
        assert due_step(secret.stored, called, NOW, TIMES) == "trust"


def test_a_second_rotation_during_the_overlap_keeps_the_cas_of_all_that_may_be_served(secret: SecretFixture) -> None:
    served = []
    for _ in range(2):
        served.append(secret.stored.current)
        secret.write(trusted_since(prepared(secret.stored, NAMES, NOW, TIMES), NOW))
        assert secret.due(NOW + TIMES.settling) == "switch"
        secret.write(switched(secret.stored, NOW, TIMES))
    assert secret.serves_trusted(NOW, *served)


def test_a_time_that_a_wrong_clock_has_written_does_not_stop_a_rotation(secret: SecretFixture) -> None:
    secret.write(trusted_since(prepared(secret.stored, NAMES, NOW, TIMES), NOW + timedelta(days=365)))
    assert secret.due(NOW) == "trust"
    secret.write(switched(trusted_since(secret.stored, NOW), NOW, TIMES))
    for text in ("words", "", "2026-11-19T12:00:00"):
        secret.document["metadata"]["annotations"]["knell.dev/previous-ca-trusted-until"] = text
        assert secret.due(NOW) == "forget"


def test_a_lost_record_of_trust_is_made_again(secret: SecretFixture) -> None:
    secret.write(trusted_since(prepared(secret.stored, NAMES, NOW, TIMES), NOW))
    secret.write(trusted_since(secret.stored, None))
    assert secret.due(NOW + LONG) == "trust"


def test_the_secret_is_created_without_what_is_not_there() -> None:
    body = without_nulls(encode_secret(replaced(EMPTY, b"", NAMES, NOW, TIMES)))
    assert set(body["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert body["metadata"] == {"annotations": {MADE: "self-made"}}
