"""Admission policies in CEL: the judgement of judgement.py in the API server, which needs no process of ours for it.

An expression that fails has the request denied, whatever it is about. So every annotation is looked for before it is
read, and the match conditions use nothing that a request may lack.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from service.admission.names import LABELS, MARKS_POLICY, POLICY, UNPROTECT
from service.admission.protected_resources import ProtectedResources
from service.contract.names import ACK_PREFIX, PREVENT_DELETE
from service.policy.annotations import NAMESPACE, OBJECT, annotation_names
from service.policy.protection import ALLOWED

(_PLAIN,) = annotation_names(PREVENT_DELETE, "")

_API: Final = "admissionregistration.k8s.io"
_LONGEST: Final = 80
"""Of a value in a message, as in service/policy/decisions.py."""

_PRINTS: Final = r"^[\pL\pM\pN\pP\pS ]$"
"""A character that Python's `repr` shows as it is."""

_ACK: Final = f'request.resource.group.endsWith(".{ACK_PREFIX}")'
_RESOURCE: Final = 'request.resource.resource + (request.resource.group == "" ? "" : "." + request.resource.group)'
"""plural.group, the plural alone for the core group."""
# In a deletecollection the request has no name; a cluster-scoped object has no namespace.
_OBJECT: Final = (
    'request.kind.kind.lowerAscii() + "/" + oldObject.metadata.name'
    ' + (has(oldObject.metadata.namespace) ? " in Namespace " + oldObject.metadata.namespace : "")'
)

Expressions = dict[str, str]
"""Expressions by the name of the variable that holds their value; they may use variables before them."""


def policy_manifests(
    protected: ProtectedResources, *, restrict_marks: bool, deletions: bool = True
) -> list[dict[str, Any]]:
    """Policies with their bindings. They are effective about a second after both are there."""
    made = _policy_and_binding(POLICY, _protection(protected)) if deletions else []
    if restrict_marks:
        made += _policy_and_binding(MARKS_POLICY, _marks(protected))
    return made


def is_protected(protected: ProtectedResources, group: str, resource: str) -> str:
    """The condition that objects of a resource can be protected. `group` and `resource`, which is plural.group, are
    expressions, too."""
    found = [f'{group}.endsWith(".{ACK_PREFIX}")']
    if protected.declared:
        found.append(f"{resource} in {_list(protected.declared)}")
    if protected.groups:
        found.append(f"{group} in {_list(protected.groups)}")
    return " || ".join(found)


def protected_request(protected: ProtectedResources) -> str:
    """The condition that a request is about such an object."""
    return is_protected(protected, "request.resource.group", _RESOURCE)


def _protection(protected: ProtectedResources) -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        # A group such as *.services.k8s.aws would be accepted here and match nothing.
        "matchConstraints": {"resourceRules": [_rule("DELETE", "*", ["*"])]},
        "matchConditions": [{"name": "protected-resource", "expression": protected_request(protected)}],
        "variables": _variables(_judgement(protected) | _words_of_denial()),
        "validations": [
            {
                "expression": "variables.denying.size() == 0",
                "reason": "Forbidden",
                "message": f"the annotation {PREVENT_DELETE} of the object or of its Namespace protects it",
                "messageExpression": (
                    'variables.object + " is protected from deletion: " + variables.reason'
                    ' + "; to lift it: kubectl annotate " + variables.place + " " + variables.lifting'
                ),
            }
        ],
    }


def _judgement(protected: ProtectedResources) -> Expressions:
    """For each service the marks of the first level and rank that has any decide; `denying` are those of services that
    protect the object."""
    known = ", ".join(f"{_text(name)}: {_list(services)}" for name, services in protected.declared.items())
    levels = ((OBJECT, "variables.own"), (NAMESPACE, "variables.outer"))
    marks = (
        f"ranks.map(names, names.filter(name, name in {source}).map(name, {_mark(level, source)}))"
        for level, source in levels
    )
    return {
        "resource": _RESOURCE,
        "own": _annotations("oldObject"),
        # It is null for cluster-scoped objects.
        "outer": f"namespaceObject == null ? dyn({{}}) : dyn({_annotations('namespaceObject')})",
        "declared": f"{{{known}}}",
        "services": (
            f'{_ACK} ? [request.resource.group.split(".")[0]]'
            ' : variables.resource in variables.declared ? variables.declared[variables.resource] : [""]'
        ),
        # For the empty service the first are names such as .knell.dev/prevent-delete, which no annotation can have.
        "names": f"variables.services.map(service, [{_names('service')}, {_names()}])",
        "ranks": f"variables.names.map(ranks, {' + '.join(marks)})",
        "deciding": (
            "variables.ranks.map(ranks, ranks.filter(marks, marks.size() > 0))"
            ".filter(ranks, ranks.size() > 0).map(ranks, ranks[0])"
        ),
        "denying": 'variables.deciding.filter(marks, !marks.all(mark, mark.word == "false"))',
    }


def _words_of_denial() -> Expressions:
    """What judgement.py says of the first service that protects the object."""
    escapes = "".join(
        f".replace({_text(sign)}, {_text(escaped)})"
        for sign, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
    )
    allowed = ", ".join(ALLOWED)
    return {
        "object": _OBJECT,
        "marks": "variables.denying[0]",
        "wrong": f"variables.marks.filter(mark, !(mark.word in {_list(ALLOWED)}))",
        "agreed": "variables.marks.all(mark, mark.word == variables.marks[0].word)",
        "mark": (
            "variables.wrong.size() > 0 ? variables.wrong[0]"
            " : variables.agreed ? variables.marks[0] : variables.marks[1]"
        ),
        "cut": (
            f"variables.mark.value.size() <= {_LONGEST} ? variables.mark.value"
            f' : variables.mark.value.substring(0, {_LONGEST - 1}) + "…"'
        ),
        # What does not print, such as what moves the cursor of a terminal; CEL can't tell its code.
        "escaped": (
            f'variables.cut{escapes}.split("").map(sign, sign.matches({_text(_PRINTS)}) ? sign : "?").join("")'
        ),
        "value": _quoted("variables.cut", "variables.escaped"),
        "annotation": '"annotation " + variables.mark.name + " of " + variables.mark.level',
        "reason": (
            "variables.wrong.size() > 0 ? variables.annotation"
            ' + (variables.mark.word == "" ? " is empty" : " has the value " + variables.value)'
            f' + "; allowed: {allowed}"'
            ' : variables.agreed ? variables.annotation + " says " + variables.value'
            ' : "annotations " + variables.marks[0].name + " (" + variables.marks[0].word + ") and "'
            ' + variables.marks[1].name + " (" + variables.marks[1].word + ") of " + variables.mark.level'
            ' + " disagree; keep one of them"'
        ),
        "lifting": ('variables.marks.filter(mark, mark.word != "false").map(mark, mark.name + "-").join(" ")'),
        "place": (
            f"variables.mark.level == {_text(NAMESPACE)}"
            ' ? "namespace " + oldObject.metadata.namespace'
            ' : variables.resource + " " + oldObject.metadata.name'
            ' + (has(oldObject.metadata.namespace) ? " -n " + oldObject.metadata.namespace : "")'
        ),
    }


def _marks(protected: ProtectedResources) -> dict[str, Any]:
    """Of the subresources, these are the ones that change metadata: others, such as `scale`, are of another kind. The
    API server's own controllers change no annotation of protection, and who creates an object may mark it."""
    namespaces = 'request.resource.group == "" && request.resource.resource == "namespaces"'
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [_rule("UPDATE", "*", ["*", "*/status"]), _rule("UPDATE", "", ["namespaces/finalize"])]
        },
        "matchConditions": [
            {"name": "protected-resource", "expression": f"{namespaces} || {protected_request(protected)}"}
        ],
        "variables": _variables(_changed_marks()),
        "validations": [
            {
                # The authorizer is asked last, because that is dear: so it is only for a changed mark.
                "expression": (
                    "variables.changed.size() == 0"
                    " || authorizer.group(request.resource.group).resource(request.resource.resource)"
                    '.namespace(request.?namespace.orValue("")).name(oldObject.metadata.name)'
                    f'.check("{UNPROTECT}").allowed()'
                ),
                "reason": "Forbidden",
                "message": (
                    f"only who has the verb {UNPROTECT} on a resource may change its annotations {PREVENT_DELETE}"
                ),
                "messageExpression": (
                    '"annotation " + variables.changed.min() + " of " + variables.object'
                    f' + " can\'t be changed by " + variables.user + " without the verb {UNPROTECT} on "'
                    " + variables.resource"
                ),
            }
        ],
    }


def _changed_marks() -> Expressions:
    marks = " || ".join(f'name == "{plain}" || name.endsWith(".{plain}")' for plain in _PLAIN)
    return {
        "resource": _RESOURCE,
        "object": _OBJECT,
        "user": 'request.userInfo.?username.orValue("this user")',
        "before": _annotations("oldObject"),
        "after": _annotations("object"),
        # Most updates change no annotation, and are let through without a look at each.
        "edited": (
            "variables.before == variables.after ? []"
            " : variables.before.filter(name, !(name in variables.after)"
            " || variables.after[name] != variables.before[name])"
            " + variables.after.filter(name, !(name in variables.before))"
        ),
        "changed": f"variables.edited.map(name, string(name)).filter(name, {marks})",
    }


def _annotations(source: str) -> str:
    return f"{source}.metadata.?annotations.orValue({{}})"


def _names(service: str = "") -> str:
    """The annotations of one rank: of the service in that CEL variable, or of all services."""
    return f"[{', '.join(f'{service} + ' + _text(f'.{name}') if service else _text(name) for name in _PLAIN)}]"


def _mark(level: str, source: str) -> str:
    value = f"string({source}[name])"
    return f'{{"level": {_text(level)}, "name": name, "value": {value}, "word": {value}.trim().lowerAscii()}}'


def _quoted(value: str, escaped: str) -> str:
    """As Python does: in double quotes only if there are single ones inside and no double ones."""
    single, double = _text("'"), _text('"')
    return (
        f"!{value}.contains({single}) ? {single} + {escaped} + {single}"
        f" : !{value}.contains({double}) ? {double} + {escaped} + {double}"
        f" : {single} + {escaped}.replace({single}, {_text(chr(92) + chr(39))}) + {single}"
    )


def _text(value: str) -> str:
    """CEL reads strings as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(_text(value) for value in values)}]"


def _variables(expressions: Expressions) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _rule(operation: str, group: str, resources: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": resources}


def _policy_and_binding(name: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = {"name": name, "labels": LABELS}
    return [
        {"apiVersion": f"{_API}/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
