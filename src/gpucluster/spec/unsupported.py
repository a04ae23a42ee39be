"""What the spec's page describes and this release does not build yet: refused by name, never ignored.

One row a path, with `[]` for the items of a list; what stands below a row is not looked at.
To build one: take its row out here, put the field in `model.py`.
"""

NOT_YET = frozenset(
    {
        "accounts",
        "health",
        "kubernetes.extra",
        "partitions[].default_time",
        "partitions[].exclusive",
        "partitions[].extra",
        "partitions[].qos",
        "partitions[].tier",
        "pools[].extra",
        "pools[].on_boot",
        "qos",
        "slurm.accounting",
        "slurm.containers",
        "slurm.extra",
        "slurm.preemption",
        "slurm.requeue",
    }
)


def not_yet_below(pattern: str) -> tuple[str, ...]:
    """The keys directly below `pattern` that are known and not built: `slurm` -> `accounting`, ..."""
    start = f"{pattern}." if pattern else ""
    rest = (row.removeprefix(start) for row in NOT_YET if row.startswith(start))
    return tuple(sorted(key for key in rest if "." not in key and "[" not in key))
