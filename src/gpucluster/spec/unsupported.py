"""Keys of the spec's documentation that this release does not support. The decoder refuses them with a message.

Each row is a path, with `[]` for the items of a list. Keys below a row are not checked.
To support one: remove its row here and add the field to the model of its part in this package (CONTRIBUTING.md, "a spec field").
"""

NOT_YET = frozenset(
    {
        "kubernetes.extra",
    }
)


def not_yet_below(pattern: str) -> tuple[str, ...]:
    """Return the unsupported keys directly below `pattern`: `slurm` -> `accounting`, ..."""
    start = f"{pattern}." if pattern else ""
    rest = (row.removeprefix(start) for row in NOT_YET if row.startswith(start))
    return tuple(sorted(key for key in rest if "." not in key and "[" not in key))
