"""The table of cases of protection at the pure function, which workers, webhook and commands use."""

import shlex

import pytest

from service.admission.judgement import JudgedObject, judge_object
from tests.protection_cases import PLAIN, SERVICE, SPECIFIC, protection_cases

CASES = protection_cases()


def judged(annotations: dict[str, str], *, namespace: str = "shop") -> JudgedObject:
    return JudgedObject("buckets.s3.services.k8s.aws", "Bucket", namespace, "prod", annotations)


def message(own: dict[str, str], outer: dict[str, str], *services: str, namespace: str = "shop") -> str:
    denial = judge_object(judged(own, namespace=namespace), outer, services or (SERVICE,))
    assert denial is not None
    return denial.message


def test_the_table_has_hundreds_of_rows_of_every_outcome() -> None:
    assert len(CASES) > 450
    assert {case.expected for case in CASES} == {"free", "protected", "invalid"}


def test_every_row_of_the_table_is_judged_as_it_says() -> None:
    for case in CASES:
        denial = judge_object(judged(dict(case.own)), case.namespace, (SERVICE,))
        assert (denial.why if denial else "free") == case.expected, case


def test_every_denial_is_one_line() -> None:
    for case in CASES:
        denial = judge_object(judged(dict(case.own)), case.namespace, (SERVICE,))
        assert denial is None or len(denial.message.splitlines()) == 1, case


def test_who_carries_out_what_the_denials_say_can_delete_the_object_in_the_end() -> None:
    for case in CASES:
        own, outer = dict(case.own), dict(case.namespace)
        while denial := judge_object(judged(own), outer, (SERVICE,)):
            _, command = denial.message.split("; to lift it: ")
            place, lifted = lifting(command)
            for name in lifted:
                del (outer if place == "namespace shop" else own)[name]


def lifting(command: str) -> tuple[str, list[str]]:
    """Place and annotations of a command that removes annotations."""
    kubectl, annotate, *words = shlex.split(command)
    assert (kubectl, annotate) == ("kubectl", "annotate")
    lifted = [word.removesuffix("-") for word in words if "/" in word]
    assert lifted, command
    return " ".join(words[: -len(lifted)]), lifted


@pytest.mark.parametrize(
    ("own", "namespace", "expected"),
    [
        (
            {},
            {"services.k8s.aws/prevent-delete": "true"},
            "bucket/prod in Namespace shop is protected from deletion: annotation services.k8s.aws/prevent-delete of "
            "its Namespace says 'true'; to lift it: kubectl annotate namespace shop services.k8s.aws/prevent-delete-",
        ),
        (
            {"s3.services.k8s.aws/prevent-delete": "yes"},
            {},
            "bucket/prod in Namespace shop is protected from deletion: annotation s3.services.k8s.aws/prevent-delete "
            "of the object has the value 'yes'; allowed: true, false; to lift it: kubectl annotate "
            "buckets.s3.services.k8s.aws prod -n shop s3.services.k8s.aws/prevent-delete-",
        ),
    ],
)
def test_a_denial_names_the_object_the_annotation_where_it_is_and_how_to_lift_it(
    own: dict[str, str], namespace: dict[str, str], expected: str
) -> None:
    assert message(own, namespace) == expected


def test_a_value_that_speaks_of_the_namespace_does_not_move_the_annotation_there() -> None:
    said = message({PLAIN[0]: "says of its Namespace so"}, {})
    assert said.endswith(f"kubectl annotate buckets.s3.services.k8s.aws prod -n shop {PLAIN[0]}-")


def test_of_two_families_that_disagree_the_one_that_protects_is_to_be_removed() -> None:
    for protecting, other in (SPECIFIC, reversed(SPECIFIC)):
        assert message({protecting: "true", other: "false"}, {}).endswith(f" -n shop {protecting}-")
    assert message({}, dict.fromkeys(PLAIN, "true")).endswith(f" namespace shop {PLAIN[0]}- {PLAIN[1]}-")


def test_a_cluster_scoped_object_is_named_without_a_namespace() -> None:
    said = message({PLAIN[1]: "true"}, {}, namespace="")
    assert said == (
        "bucket/prod is protected from deletion: annotation knell.dev/prevent-delete of the object says 'true'; "
        "to lift it: kubectl annotate buckets.s3.services.k8s.aws prod knell.dev/prevent-delete-"
    )


def test_any_service_of_a_resource_protects_its_objects() -> None:
    own = {"rds.knell.dev/prevent-delete": "true", "s3.knell.dev/prevent-delete": "false"}
    assert judge_object(judged(own), {}, ("s3",)) is None
    assert "annotation rds.knell.dev/prevent-delete of the object" in message(own, {}, "s3", "rds")
