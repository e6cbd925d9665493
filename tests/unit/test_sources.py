"""Registry of sources: what a program adds is known to the settings, the roles, policy and the decoder of objects, as
the built-in sources are, and only as long as it is registered."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import pytest

from service.cli.kept_tags import configured_places, place_forms, untag_command
from service.cli.rbac import role_manifests
from service.contract.names import FINALIZER
from service.durations import Positive
from service.kubernetes.decoding import policy_annotations
from service.policy.decisions import PolicyDecision
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.settings import (
    ClusterSettings,
    FeatureSettings,
    PolicySettings,
    Settings,
    SettingsError,
    SourceSettings,
    check_collectors,
    load,
)
from service.settings.environment import variables
from service.sources.aws import AwsAccess
from service.sources.azure import kept_on_azure
from service.sources.capa import AWS_ACCOUNT, CAPA, DEFAULT_TASKS, AwsSettings
from service.sources.declaration import (
    AccessRules,
    ConfiguredSource,
    KeptPlaces,
    Mode,
    NamespaceRules,
    Rule,
    Section,
    Sections,
    Source,
    recognise_nothing,
)
from service.sources.karpenter_azure import AzureSettings
from service.sources.registry import (
    SOURCES,
    known_annotations,
    known_finalizers,
    known_sources,
    register,
    source_named,
)

HOLD: Final = "toys.example/hold"


class ToySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    every: Positive = timedelta(seconds=1)
    house: str = "toys"

    def contradictions(self, sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        used = [name for name, source in sources.items() if source.collector == "toy"]
        return [("toy.house", f"is empty, but needed by {used}")] if used and not self.house else []


def toy_house(settings: Sections) -> str:
    return settings.section(ToySettings).house


def toy_pause(annotations: Mapping[str, str]) -> PolicyDecision | None:
    return PolicyDecision("paused", "the toy is held", HOLD) if HOLD in annotations else None


TOY: Final = Source(
    name="toy",
    resources=("toys.example",),
    finalizer="toys.example/finalizer",
    modes=("finalizer",),
    feature="Toys",
    sections=(Section("toy", ToySettings),),
    annotations=frozenset({HOLD}),
    pause=toy_pause,
    rules=AccessRules(
        definitions=("boxes.example",),
        cluster=(Rule("example", ("boxes",), ("list",)),),
        objects=(Rule("example", ("owners",), ("get",)),),
        namespaces=(NamespaceRules("toys", toy_house, (Rule("", ("secrets",), ("get",), ("key",)),)),),
    ),
)
DECLARED: Final = SourceSettings(resource="toys.example", collector="toy")
SETTINGS: Final = Settings(clusters={"here": ClusterSettings(in_cluster=True)}, sources={"toys": DECLARED})
YAML: Final = """
clusters: {here: {in_cluster: true}}
sources: {toys: {resource: toys.example, collector: toy}}
"""


@pytest.fixture
def toy() -> Iterator[Source]:
    with register(TOY) as added:
        yield added


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(written(folder, text), {})
    return str(caught.value)


def test_every_built_in_source_has_one_declaration() -> None:
    assert len({source.name for source in SOURCES}) == len(SOURCES) > 1
    assert known_sources() == SOURCES
    for source in SOURCES:
        assert source_named(source.name) is source
        assert source.modes
        assert (source.components == "") == (source.name == "none")


def test_a_source_is_known_as_long_as_it_is_registered() -> None:
    with register(TOY) as added:
        assert added is source_named("toy")
        assert known_sources() == (*SOURCES, TOY)
        assert TOY.finalizer in known_finalizers()
        assert HOLD in known_annotations()
    assert known_sources() == SOURCES
    assert TOY.finalizer not in known_finalizers()
    assert HOLD not in known_annotations()


def test_an_unknown_name_has_a_plain_declaration() -> None:
    found = source_named("unheard")
    assert (found.finalizer, found.feature, found.resources) == (FINALIZER, "", ())
    assert found.recognise is recognise_nothing
    assert (found.capi, found.swept) == (False, False)


def test_names_and_sections_can_not_be_taken_twice(toy: Source) -> None:
    with pytest.raises(ValueError, match="same name"):
        register(Source(name=toy.name))
    with pytest.raises(ValueError, match="section aws of source other has another type"):
        register(Source(name="other", sections=(Section("aws", ToySettings),)))
    with register(Source(name="other", sections=(Section("aws", AwsSettings),))):
        assert variables()["KNELL_AWS_SETTLE"] == ("aws", "settle")
    assert known_sources() == (*SOURCES, toy)


@pytest.mark.parametrize("modes", [("finalizer",), ("finalizer", "observe")])
def test_a_swept_source_must_only_observe(modes: tuple[Mode, ...]) -> None:
    with pytest.raises(ValueError, match=r"source toy is swept, so its modes must be \(\"observe\",\)"):
        register(msgspec.structs.replace(TOY, modes=modes, swept=True))
    assert known_sources() == SOURCES


class OtherOnAws(AwsAccess, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A second section with the settings of the access to AWS."""


@pytest.mark.parametrize(
    ("kind", "shared"),
    [(OtherOnAws, "AwsAccess"), (AwsAccess, "AwsAccess"), (AwsSettings, "AwsSettings")],
)
def test_settings_that_sources_share_are_in_one_section(kind: type[msgspec.Struct], shared: str) -> None:
    with pytest.raises(ValueError, match=f"sections aws and other both are {shared}"):
        register(Source(name="other", sections=(Section("other", kind),)))
    with register(Source(name="other", sections=(Section("other", ToySettings),))):
        loaded = load(None, {"KNELL_AWS_SNAPSHOT_FIRST": "true"})
        assert loaded.section(AwsAccess).snapshot_first
    assert known_sources() == SOURCES


def kept_toys(*places: str) -> KeptPlaces:
    return KeptPlaces(
        provider="toys",
        form="toys/HOUSE",
        pattern="toys/[^/]+",
        untag=untag_toy,
        configured=lambda settings: [f"toys/{settings.section(ToySettings).house}", *places],
    )


def untag_toy(place: str, kind: str, one: str) -> str:
    return f"toys untag {place} {kind} {one}"


def test_the_places_of_all_sources_of_a_provider_are_searched_for_tags(toy: Source) -> None:
    before = configured_places(SETTINGS)
    azure = kept_on_azure(lambda _settings: ["azure/s/g"])
    with (
        register(Source(name="first", sections=toy.sections, kept=kept_toys("toys/attic"))),
        register(Source(name="second", sections=toy.sections, kept=kept_toys("toys/cellar"))),
        register(Source(name="nodes", kept=azure)),
    ):
        found = configured_places(SETTINGS)
        assert set(found) - set(before) == {"toys/toys", "toys/attic", "toys/cellar", "azure/s/g"}
        assert place_forms().split(" or ").count("toys/HOUSE") == 1
        assert untag_command("toys/attic", "doll", "d1") == "toys untag toys/attic doll d1"


def test_places_of_a_provider_are_written_in_one_way() -> None:
    other = msgspec.structs.replace(kept_toys(), form="toys/HOUSE/ROOM")
    with (
        register(Source(name="first", kept=kept_toys())),
        pytest.raises(ValueError, match="source second writes the places of provider toys in another way"),
    ):
        register(Source(name="second", kept=other))


def test_tasks_and_account_are_those_of_the_declaration() -> None:
    tasks, account = source_named(CAPA).tasks, source_named(CAPA).account
    assert tasks is not None
    assert account is not None
    settings = msgspec.structs.replace(
        SETTINGS, sections={"aws": AwsSettings(allowed_tasks=(*DEFAULT_TASKS, "volume"))}
    )
    assert (tasks.chosen(settings), tasks.allowed(settings)) == (DEFAULT_TASKS, (*DEFAULT_TASKS, "volume"))
    # Policy reads it; else it would be dropped when an object is decoded.
    assert tasks.annotation in known_annotations()
    assert (account.name, account.form) == (AWS_ACCOUNT, "12 digits")
    assert source_named("none").tasks is None
    assert source_named("none").account is None


def test_a_section_that_settings_have_already_is_an_error() -> None:
    with (
        register(Source(name="other", sections=(Section("redis", ToySettings),))),
        pytest.raises(ValueError, match="redis"),
    ):
        load(None, {})


@pytest.mark.usefixtures("toy")
def test_its_section_is_read_from_the_file_and_the_environment(tmp_path: Path) -> None:
    config = written(tmp_path, f"{YAML}toy: {{every: 3s, house: mine}}\nfeatures: {{Toys: true}}")
    loaded = load(config, {})
    assert loaded.section(ToySettings) == ToySettings(every=timedelta(seconds=3), house="mine")
    assert loaded.features.on("Toys")
    assert not loaded.features.on("ExternalResourceGC")
    over = load(config, {"KNELL_TOY_EVERY": "5s", "KNELL_FEATURES_TOYS": "false"})
    assert over.section(ToySettings) == ToySettings(every=timedelta(seconds=5), house="mine")
    assert not over.features.on("Toys")
    assert (over.section(AwsSettings), over.section(AzureSettings)) == (AwsSettings(), AzureSettings())


@pytest.mark.usefixtures("toy")
def test_its_keys_are_among_all_variables_and_in_messages(tmp_path: Path) -> None:
    assert {"KNELL_TOY_EVERY", "KNELL_TOY_HOUSE", "KNELL_FEATURES_TOYS"} <= set(variables())
    message = refused(tmp_path, f"{YAML}toy: {{evry: 3s}}\nfeatures: {{Toy: true}}")
    assert "toy.evry" in message
    assert "did you mean every?" in message
    assert "did you mean Toys?" in message
    assert "needed by ['toys']" in refused(tmp_path, f"{YAML}toy: {{house: ''}}")


def test_its_section_is_unknown_without_it(tmp_path: Path) -> None:
    assert "KNELL_TOY_EVERY" not in variables()
    assert "toy" in refused(tmp_path, "toy: {every: 3s}")


def names(*added: str) -> str:
    return ", ".join(sorted([*(source.name for source in SOURCES), *added]))


def test_its_collector_is_among_the_allowed_ones() -> None:
    others = {**SETTINGS.sources, "more": SourceSettings(resource="x", collector="magic")}
    with register(TOY):
        check_collectors(SETTINGS.sources)
        with pytest.raises(SettingsError, match=rf"'magic' given; allowed: {names('toy')}"):
            check_collectors(others)
    with pytest.raises(SettingsError, match=rf"sources\.toys\.collector: 'toy' given; allowed: {names()}(?!,)"):
        check_collectors(SETTINGS.sources)


@pytest.mark.usefixtures("toy")
def test_settings_check_its_resources_and_modes(tmp_path: Path) -> None:
    assert "the collector toy is for toys.example" in refused(tmp_path, YAML.replace("toys.example", "balls.example"))
    assert "sources.toys.mode" in refused(tmp_path, YAML.replace("collector: toy", "collector: toy, mode: observe"))


@pytest.mark.usefixtures("toy")
def test_its_rules_are_in_the_roles() -> None:
    settings = msgspec.structs.replace(SETTINGS, sections={"toy": ToySettings(house="playroom")})
    roles = {
        (made["metadata"].get("namespace", ""), made["metadata"]["name"]): made["rules"]
        for made in role_manifests(settings, "here")
        if "rules" in made
    }
    everywhere = roles["", "knell"]
    assert {"apiGroups": ["example"], "resources": ["boxes"], "verbs": ["list"]} in everywhere
    assert {"apiGroups": ["example"], "resources": ["owners"], "verbs": ["get"]} in everywhere
    (definitions,) = [rule for rule in everywhere if rule["resources"] == ["customresourcedefinitions"]]
    assert definitions["resourceNames"] == ["boxes.example", "toys.example"]
    assert roles["playroom", "knell-toys"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["key"]}
    ]


def test_the_lease_of_a_sweep_is_in_the_roles() -> None:
    sources = {"toys": msgspec.structs.replace(DECLARED, mode="observe")}
    with register(msgspec.structs.replace(TOY, modes=("observe",), swept=True)):
        made = role_manifests(msgspec.structs.replace(SETTINGS, sources=sources), "here")
    leases = [rule for one in made for rule in one.get("rules", ()) if rule["resources"] == ["leases"]]
    assert any("knell-toys-sweep" in rule.get("resourceNames", ()) for rule in leases)


@pytest.mark.usefixtures("toy")
def test_in_namespaces_of_a_source_its_rules_are_there_only() -> None:
    confined = msgspec.structs.replace(DECLARED, namespaces=("one",))
    made = role_manifests(msgspec.structs.replace(SETTINGS, sources={"toys": confined}), "here")
    owners = {"apiGroups": ["example"], "resources": ["owners"], "verbs": ["get"]}
    where = [one["metadata"].get("namespace", "") for one in made if owners in one.get("rules", ())]
    assert where == ["one"]


def judged(**annotations: str) -> tuple[str, str]:
    on = FeatureSettings(frozenset({"Toys"}))
    facts = PolicyInput(
        source=DECLARED, policy=PolicySettings(), features=on, labels={}, annotations=annotations, namespace={}
    )
    found = evaluate_policy(facts)
    return found.kind, found.reason


def test_its_annotations_are_kept_and_pause_its_objects() -> None:
    marks = {HOLD: "", "toys.example/other": "x"}
    with register(TOY):
        assert policy_annotations(marks) == {HOLD: ""}
        assert judged(**{HOLD: ""}) == ("paused", "the toy is held")
        assert judged()[0] == "delete"
    assert policy_annotations(marks) == {}
    assert judged(**{HOLD: ""})[0] == "delete"
