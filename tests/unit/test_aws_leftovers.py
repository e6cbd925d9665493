"""Removal of leftovers by the final check: one after another, none blocks the others, and no hot loop."""

from datetime import timedelta

from service.contract import Blocked, Gone, Left, Pending, Refused, Verdict
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.leftovers import (
    MAX_LEFTOVERS,
    MAX_LIST_NAMES,
    Leftover,
    LeftoverLanes,
    Leftovers,
    awaiting_list,
    leftovers_from,
    leftovers_of,
)
from workers.collectors.capa.resource_finder import OwnedResource
from workers.collectors.capa.tagging_api import is_unavailable
from workers.handlers.protocol import NotCleared
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsResource, CallScope

ROUND = timedelta(seconds=5)
PLACE, HOME = "aws/1/r", "aws/1/r/tag.GetResources"
WAY = LeftoverLanes(PLACE, HOME, ROUND)
OWNER = CapaClaim(scope=CallScope(source="s", namespace="n", region="r"), account="1", name="prod")
GROUP, BALANCER = "aws.security-group", "aws.classic-balancer"
DELETING = f"{PLACE}/ec2.DeleteSecurityGroup"
CHECKING = f"{PLACE}/ec2.DescribeSecurityGroups"


def claim(kind: str, name: str) -> OwnedResource:
    return OwnedResource(CAPA_KINDS[kind].kind, OWNER, AwsResource(kind=kind, id=name, tags={}))


def carried(leftovers: Leftovers, verdict: Verdict | Exception, before: str = "check") -> tuple[Pending, Leftovers]:
    found = WAY.after_removal(leftovers, verdict, before)
    assert isinstance(found, Pending), found
    return found, leftovers_of(found.resume)


ONE = Leftovers(kind=GROUP, id="sg-1", idle=1)
TWO = Leftovers(kind=GROUP, id="sg-1", rest=(Leftover(GROUP, "sg-2", "lbc"),), idle=1)


def test_they_are_run_in_the_order_of_stages_and_what_stayed_comes_last() -> None:
    claims = [claim(GROUP, "sg-1"), claim(BALANCER, "web"), claim(BALANCER, "api")]
    first = leftovers_from(claims, Leftovers())
    assert [first.id, *(stop.id for stop in first.rest)] == ["api", "web", "sg-1"]
    then = leftovers_from(claims, Leftovers(stuck=("api",)))
    assert [then.id, *(stop.id for stop in then.rest)] == ["web", "sg-1", "api"]


def test_more_leftovers_than_fit_wait_for_the_next_list_and_stuck_ones_do_not_fill_it() -> None:
    claims = [claim(GROUP, f"sg-{number:03}") for number in range(MAX_LEFTOVERS + 5)]
    first = leftovers_from(claims, Leftovers())
    assert len(first.rest) == MAX_LEFTOVERS - 1
    stuck = (first.id, *(stop.id for stop in first.rest))
    assert leftovers_from(claims, Leftovers(stuck=stuck)).id == f"sg-{MAX_LEFTOVERS:03}"


def test_what_was_deleted_is_not_waited_for_while_there_are_others() -> None:
    accepted = Pending(ROUND, "deleted", lane=CHECKING)
    found, then = carried(TWO, accepted)
    assert (found.lane, found.check_after) == (DELETING, timedelta(0))
    assert (then.id, then.by, then.rest, then.idle) == ("sg-2", "lbc", (), 0)
    # The absence of the last one is proven in the cheapest lane.
    found, then = carried(ONE, accepted)
    assert (found.lane, then.id) == (CHECKING, "sg-1")


def test_a_step_of_its_kind_goes_on_with_what_it_left_for_itself() -> None:
    found, then = carried(TWO, Pending(ROUND, "revoked", lane=f"{PLACE}/ec2.RevokeSecurityGroupIngress", resume="x"))
    assert found.lane == f"{PLACE}/ec2.RevokeSecurityGroupIngress"
    assert (then.id, then.resume, then.rest) == ("sg-1", "x", TWO.rest)
    # What must be recorded verbatim is not lost on the way.
    assert carried(TWO, Pending(ROUND, "revoking", lane=f"{PLACE}/ec2.X", kept='{"rule":"sgr-1"}'))[0].kept


def test_the_list_is_repeated_after_a_delay_that_grows_while_nothing_can_be_removed() -> None:
    found, then = carried(ONE, Gone())
    assert found.lane == HOME
    assert ROUND / 2 <= found.check_after <= ROUND * 1.5
    assert then == Leftovers()
    found, then = carried(Leftovers(kind=GROUP, id="sg-1", idle=4), Refused("denied"), "refused")
    assert found.check_after >= ROUND * 8
    assert then == Leftovers(stuck=("sg-1",), idle=4)
    assert leftovers_from([claim(GROUP, "sg-1")], then).idle == 5


def test_what_is_in_the_way_is_passed_over_and_the_last_one_tells_of_all() -> None:
    for verdict in (Refused("it is denied"), Blocked("used by eni-1")):
        _, then = carried(TWO, verdict)
        assert (then.id, then.stuck) == ("sg-2", ("sg-1",))
        last = WAY.after_removal(then, verdict, "check")
        assert isinstance(last, Refused | Blocked)
        assert type(last) is type(verdict)
        words = last.reason if isinstance(last, Refused) else last.by
        assert "sg-1: " in words
        assert "sg-2: " in words


def test_one_alone_that_is_blocked_waits_where_it_is() -> None:
    blocked = Blocked("used by eni-1", timedelta(seconds=3))
    assert WAY.after_removal(ONE, blocked, "blocked") == Blocked(
        "aws.security-group sg-1: used by eni-1", blocked.until
    )


def test_of_several_that_are_blocked_the_last_does_not_keep_the_others_from_being_looked_at() -> None:
    found, then = carried(Leftovers(kind=GROUP, id="sg-2", stuck=("sg-1",), idle=1), Blocked("used"), "blocked")
    assert (found.lane, then.stuck) == (HOME, ("sg-1", "sg-2"))


def test_one_that_is_not_wanted_any_more_ends_neither_the_others_nor_the_final_check() -> None:
    _, then = carried(TWO, Left("its task is not wanted any more"))
    assert (then.id, then.stuck) == ("sg-2", ())
    found, _ = carried(ONE, Left("its task is not wanted any more"))
    assert found.lane == HOME


def test_a_failure_is_tried_once_more_before_the_others_come() -> None:
    failure = AwsError("unreachable", "ec2:DeleteSecurityGroup", "NoConnection", "away")
    assert WAY.after_removal(TWO, failure, "check") is failure
    _, then = carried(TWO, failure, "retry")
    assert (then.id, then.stuck) == ("sg-2", ("sg-1",))
    assert WAY.after_removal(ONE, failure, "retry") is failure


def test_what_is_not_cleared_is_the_runtime_s_to_hear() -> None:
    objection = NotCleared("paused", refused=True)
    assert WAY.after_removal(TWO, objection, "retry") is objection


def test_state_that_can_not_be_decoded_or_is_of_an_unknown_kind_goes_back_to_the_list() -> None:
    assert leftovers_of("not json") == Leftovers()
    assert leftovers_of('{"kind": 5}') == Leftovers()
    assert WAY.remove(Leftovers(kind="aws.of-tomorrow", id="x"), "").lane == HOME


def test_only_a_missing_or_foreign_response_makes_the_tagging_api_unavailable() -> None:
    def said(what: str, code: str) -> bool:
        return is_unavailable(AwsError(what, "tag:GetResources", code, ""))  # type: ignore[arg-type]

    assert said("unreadable", "NoAnswerOfAws")
    assert said("denied", "AccessDeniedException")
    for code in ("PaginationLoop", "NoList"):
        assert not said("unreadable", code)
    assert not said("other", "PaginationTokenExpiredException")


# ---- lists in the background


def test_a_list_that_goes_on_is_come_back_for_by_its_name_in_every_process_that_began_one() -> None:
    first = awaiting_list("", "a-1")
    assert (first.asked, first.first) == (("a-1",), True)
    then = awaiting_list(first.text, "b-7")
    assert (then.asked, then.first) == (("a-1", "b-7"), True)
    assert awaiting_list(then.text, "a-1").asked == ("b-7", "a-1")
    for number in range(3 * MAX_LIST_NAMES):
        then = awaiting_list(then.text, f"c-{number}")
    assert len(then.asked) == MAX_LIST_NAMES


def test_after_something_was_removed_an_awaited_list_is_not_taken_for_the_first() -> None:
    assert not awaiting_list(Leftovers().text, "a-1").first
    assert awaiting_list(Leftovers(stuck=("sg-1",), idle=3).text, "a-1") == Leftovers(
        stuck=("sg-1",), idle=3, asked=("a-1",)
    )


def test_a_new_list_is_read_after_any_action() -> None:
    before = awaiting_list("", "a-1")
    sent = leftovers_from([claim(GROUP, "sg-1")], before)
    assert (sent.asked, sent.first) == ((), False)
    _, then = carried(Leftovers(kind=GROUP, id="sg-1", asked=("a-1",), first=True), Gone())
    assert (then.asked, then.first) == ((), False)
