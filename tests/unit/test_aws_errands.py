"""Errands of the last look: one after another, none hides the others, and nothing is asked in a hot loop."""

from datetime import timedelta

from service.contract import Blocked, Gone, Left, Pending, Refused, Verdict
from workers.handlers.aws.errands import MOST, PROCESSES, Errand, Stop, Way, awaiting, errand_of, sent_for
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.finding import KIND, Claim
from workers.handlers.aws.model import Found, Owner, Whose
from workers.handlers.aws.tagging import away
from workers.handlers.protocol import NotCleared

ROUND = timedelta(seconds=5)
PLACE, HOME = "aws/1/r", "aws/1/r/tag.GetResources"
WAY = Way(PLACE, HOME, ROUND)
OWNER = Owner(whose=Whose(source="s", namespace="n", region="r"), account="1", name="prod")
GROUP, BALANCER = "aws.security-group", "aws.classic-balancer"
DELETING = f"{PLACE}/ec2.DeleteSecurityGroup"
CHECKING = f"{PLACE}/ec2.DescribeSecurityGroups"


def claim(kind: str, name: str) -> Claim:
    return Claim(KIND[kind], OWNER, Found(kind=kind, id=name, tags={}))


def carried(errand: Errand, verdict: Verdict | Exception, before: str = "check") -> tuple[Pending, Errand]:
    found = WAY.carried(errand, verdict, before)
    assert isinstance(found, Pending), found
    return found, errand_of(found.resume)


ONE = Errand(kind=GROUP, id="sg-1", idle=1)
TWO = Errand(kind=GROUP, id="sg-1", rest=(Stop(GROUP, "sg-2", "lbc"),), idle=1)


def test_they_are_run_in_the_order_of_stages_and_what_stayed_comes_last() -> None:
    claims = [claim(GROUP, "sg-1"), claim(BALANCER, "web"), claim(BALANCER, "api")]
    first = sent_for(claims, Errand())
    assert [first.id, *(stop.id for stop in first.rest)] == ["api", "web", "sg-1"]
    then = sent_for(claims, Errand(stuck=("api",)))
    assert [then.id, *(stop.id for stop in then.rest)] == ["web", "sg-1", "api"]


def test_more_than_an_errand_names_wait_for_the_next_list_and_stuck_ones_do_not_fill_it() -> None:
    claims = [claim(GROUP, f"sg-{number:03}") for number in range(MOST + 5)]
    first = sent_for(claims, Errand())
    assert len(first.rest) == MOST - 1
    stuck = (first.id, *(stop.id for stop in first.rest))
    assert sent_for(claims, Errand(stuck=stuck)).id == f"sg-{MOST:03}"


def test_what_was_deleted_is_not_waited_for_while_there_are_others() -> None:
    accepted = Pending(ROUND, "deleted", lane=CHECKING)
    found, then = carried(TWO, accepted)
    assert (found.lane, found.check_after) == (DELETING, timedelta(0))
    assert (then.id, then.by, then.rest, then.idle) == ("sg-2", "lbc", (), 0)
    # The last one's absence is proven where that costs least.
    found, then = carried(ONE, accepted)
    assert (found.lane, then.id) == (CHECKING, "sg-1")


def test_a_step_of_its_kind_goes_on_with_what_it_left_for_itself() -> None:
    found, then = carried(TWO, Pending(ROUND, "revoked", lane=f"{PLACE}/ec2.RevokeSecurityGroupIngress", resume="x"))
    assert found.lane == f"{PLACE}/ec2.RevokeSecurityGroupIngress"
    assert (then.id, then.resume, then.rest) == ("sg-1", "x", TWO.rest)
    # What is to be written down word for word is not lost on the way.
    assert carried(TWO, Pending(ROUND, "revoking", lane=f"{PLACE}/ec2.X", kept='{"rule":"sgr-1"}'))[0].kept


def test_the_list_is_asked_again_after_a_round_and_later_and_later_while_nothing_can_be_removed() -> None:
    found, then = carried(ONE, Gone())
    assert found.lane == HOME
    assert ROUND / 2 <= found.check_after <= ROUND * 1.5
    assert then == Errand()
    found, then = carried(Errand(kind=GROUP, id="sg-1", idle=4), Refused("denied"), "refused")
    assert found.check_after >= ROUND * 8
    assert then == Errand(stuck=("sg-1",), idle=4)
    assert sent_for([claim(GROUP, "sg-1")], then).idle == 5


def test_what_is_in_the_way_is_passed_over_and_the_last_one_tells_of_all() -> None:
    for verdict in (Refused("it is denied"), Blocked("used by eni-1")):
        _, then = carried(TWO, verdict)
        assert (then.id, then.stuck) == ("sg-2", ("sg-1",))
        last = WAY.carried(then, verdict, "check")
        assert isinstance(last, Refused | Blocked)
        assert type(last) is type(verdict)
        words = last.reason if isinstance(last, Refused) else last.by
        assert "sg-1: " in words
        assert "sg-2: " in words


def test_one_alone_that_is_blocked_waits_where_it_is() -> None:
    blocked = Blocked("used by eni-1", timedelta(seconds=3))
    assert WAY.carried(ONE, blocked, "blocked") == Blocked("aws.security-group sg-1: used by eni-1", blocked.until)


def test_of_several_that_are_blocked_the_last_does_not_keep_the_others_from_being_looked_at() -> None:
    found, then = carried(Errand(kind=GROUP, id="sg-2", stuck=("sg-1",), idle=1), Blocked("used"), "blocked")
    assert (found.lane, then.stuck) == (HOME, ("sg-1", "sg-2"))


def test_one_that_is_not_wanted_any_more_ends_neither_the_others_nor_the_last_look() -> None:
    _, then = carried(TWO, Left("its task is not wanted any more"))
    assert (then.id, then.stuck) == ("sg-2", ())
    found, _ = carried(ONE, Left("its task is not wanted any more"))
    assert found.lane == HOME


def test_a_failure_is_tried_once_more_before_the_others_come() -> None:
    failure = AwsError("unreachable", "ec2:DeleteSecurityGroup", "NoConnection", "away")
    assert WAY.carried(TWO, failure, "check") is failure
    _, then = carried(TWO, failure, "retry")
    assert (then.id, then.stuck) == ("sg-2", ("sg-1",))
    assert WAY.carried(ONE, failure, "retry") is failure


def test_what_is_not_cleared_is_the_runtime_s_to_hear() -> None:
    objection = NotCleared("paused", refused=True)
    assert WAY.carried(TWO, objection, "retry") is objection


def test_an_errand_that_can_not_be_read_or_is_of_an_unknown_kind_goes_back_to_the_list() -> None:
    assert errand_of("not json") == Errand()
    assert errand_of('{"kind": 5}') == Errand()
    assert WAY.to(Errand(kind="aws.of-tomorrow", id="x"), "").lane == HOME


def test_only_who_answers_in_its_place_or_not_at_all_makes_the_tagging_api_absent() -> None:
    def said(what: str, code: str) -> bool:
        return away(AwsError(what, "tag:GetResources", code, ""))  # type: ignore[arg-type]

    assert said("unreadable", "NoAnswerOfAws")
    assert said("denied", "AccessDeniedException")
    for code in ("PaginationLoop", "NoList"):
        assert not said("unreadable", code)
    assert not said("other", "PaginationTokenExpiredException")


# ---- lists that go on


def test_a_list_that_goes_on_is_come_back_for_by_its_name_in_every_process_that_began_one() -> None:
    first = awaiting("", "a-1")
    assert (first.asked, first.first) == (("a-1",), True)
    then = awaiting(first.text, "b-7")
    assert (then.asked, then.first) == (("a-1", "b-7"), True)
    assert awaiting(then.text, "a-1").asked == ("b-7", "a-1")
    for number in range(3 * PROCESSES):
        then = awaiting(then.text, f"c-{number}")
    assert len(then.asked) == PROCESSES


def test_after_something_was_removed_an_awaited_list_is_not_taken_for_the_first() -> None:
    assert not awaiting(Errand().text, "a-1").first
    assert awaiting(Errand(stuck=("sg-1",), idle=3).text, "a-1") == Errand(stuck=("sg-1",), idle=3, asked=("a-1",))


def test_whatever_is_done_the_list_is_asked_for_anew_afterwards() -> None:
    before = awaiting("", "a-1")
    sent = sent_for([claim(GROUP, "sg-1")], before)
    assert (sent.asked, sent.first) == ((), False)
    _, then = carried(Errand(kind=GROUP, id="sg-1", asked=("a-1",), first=True), Gone())
    assert (then.asked, then.first) == ((), False)
