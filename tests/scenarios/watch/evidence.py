"""Checks after every scenario: deleted objects are released and recorded once, all others are unchanged.
Three independent sources are compared: the cluster, Redis, and the provider's own log."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta

from service.contract.names import FINALIZER
from service.engine.views.deletions import DeletionView
from tests.scenarios.watch.objects import BYSTANDER, PATIENCE, finalizers, is_going
from tests.scenarios.watch.watch_scenario import WatchScenario


async def until_released(scenario: WatchScenario, *names: str, within: timedelta = PATIENCE) -> None:
    """Waits until these are gone from the cluster and their deletions are done."""
    wanted = set(names)

    async def released() -> bool:
        # The cheap question first, and `done` comes last.
        if await scenario.finished() < len(wanted) or not wanted <= await scenario.done():
            return False
        return not wanted & (await scenario.live()).keys()

    await scenario.until(f"{len(wanted)} objects are released", released, within)


async def assert_story(
    scenario: WatchScenario,
    released: Collection[str],
    *,
    recorded: Collection[str] | None = None,
    others: Mapping[str, str] | None = None,
    unmarked: Collection[str] = (),
    left: Collection[str] = (),
    gone: Collection[str] = (),
    tried: Collection[str] = (),
) -> None:
    """`released` are the objects that had to go, `recorded` those whose record must still be there (all of them, unless
    Redis was lost); `others` are further deletions, by id, and their states. Everything else that was made must be
    as it was, but for `unmarked` ones without our finalizer and `left` ones that went without us. `gone` are resources
    of those that were removed before consent was withdrawn, `tried` such that were asked for in vain."""
    await _assert_cluster(scenario, released, {*unmarked}, {*left})
    await _assert_records(scenario, released if recorded is None else recorded, others or {})
    _assert_provider(scenario, released, gone, tried)


async def _assert_cluster(
    scenario: WatchScenario, released: Collection[str], unmarked: set[str], left: set[str]
) -> None:
    live = await scenario.live()
    assert not live.keys() & set(released), "these were to be released"
    kept = scenario.made.keys() - set(released) - left
    assert live.keys() == kept, "these were to stay"
    for name in kept:
        item, made = live[name], scenario.made[name]
        assert not is_going(item), f"{name} was to stay"
        source = scenario.document["sources"].get(made.source, {})
        ours = source.get("mode", "finalizer") == "finalizer" and name not in unmarked
        assert (FINALIZER in finalizers(item)) is ours, f"our finalizer on {name}: {finalizers(item)}"
        assert [one["id"] for one in item["spec"]["targets"]] == list(made.targets)


async def _assert_records(scenario: WatchScenario, released: Collection[str], others: Mapping[str, str]) -> None:
    found = await scenario.deletions()
    wanted = {scenario.deletion_of(name): "done" for name in released} | dict(others)
    # What is held for a reason that may pass is looked at again and again.
    looked_at = {id_ for id_, state in others.items() if state == "held" and _state(found, id_) == "published"}
    assert {id_: view.state for id_, view in found.items() if id_ not in looked_at} == {
        id_: state for id_, state in wanted.items() if id_ not in looked_at
    }
    for name in released:
        view = found[scenario.deletion_of(name)]
        made = scenario.made[name]
        assert (view.name, view.namespace, view.uid, view.source) == (name, made.namespace, made.uid, made.source)
        assert (view.left, view.abandoned, view.given_up, view.withdrawn) == (0, 0, 0, "")
        assert view.jobs == len(made.targets) + 1, f"{name} has another plan than its targets and the release"
    ended = [state for state in wanted.values() if state == "done"]
    assert (await scenario.stats()).get("done", 0) == len(ended), "something was done twice"


def _state(found: Mapping[str, DeletionView], deletion: str) -> str:
    return found[deletion].state if deletion in found else ""


def _assert_provider(
    scenario: WatchScenario, released: Collection[str], gone: Collection[str], tried: Collection[str]
) -> None:
    doomed = {target for name in released for target in scenario.made[name].targets} | set(gone)
    calls = scenario.calls()
    assert {line.id for line in calls} <= doomed | set(tried), "something else was touched"
    took = Counter(line.id for line in calls if line.status in (202, 204))
    assert took == Counter(dict.fromkeys(doomed, 1)), "not everything was removed exactly once"
    standing = {id_ for _, id_ in scenario.provider.state.existing}
    spared = {target for name in scenario.made.keys() - set(released) for target in scenario.made[name].targets}
    assert spared - set(gone) | {BYSTANDER} <= standing
    assert not standing & doomed
