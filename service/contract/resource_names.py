"""Names of Kubernetes kinds as users write them: `awscluster`, `awsclusters`, with or without the group.
Records have the plural and the group, so the singular is derived by the rules of English plurals."""

_HISSING = ("s", "x", "z", "ch", "sh")


def fits_kind(word: str, resource: str) -> bool:
    """Whether a word means the resource `plural.group`: its plural or singular, in any case, with or without group. As
    for kubectl, the beginning of a group will do, such as `bucket.s3`."""
    name, _, wanted = word.casefold().partition(".")
    plural, _, group = resource.casefold().partition(".")
    if not fits_group(wanted, group):
        return False
    if name.endswith("y") and plural == f"{name[:-1]}ies":
        return True
    return plural in (name, f"{name}es" if name.endswith(_HISSING) else f"{name}s")


def fits_group(wanted: str, group: str) -> bool:
    """Whether it is the group or its beginning, up to a dot; no text at all fits every group."""
    return not wanted or f"{group}.".startswith(f"{wanted}.")


def short_kind(resource: str) -> str:
    """The singular without its group, for tables: `awscluster`. `fits_kind` accepts it."""
    plural = resource.partition(".")[0]
    guesses = (f"{plural.removesuffix('ies')}y", plural.removesuffix("es"), plural.removesuffix("s"))
    return next((guess for guess in guesses if guess != plural and fits_kind(guess, plural)), plural)


def full_kind(resource: str) -> str:
    """The singular with its group, as `kubectl -o name` writes it."""
    _, dot, group = resource.partition(".")
    return f"{short_kind(resource)}{dot}{group}"


def qualified(namespace: str, name: str) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name
