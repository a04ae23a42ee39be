"""The versions of Slurm whose behaviour is recorded in `catalog/data/slurm-*-VERSION.json`."""

RECORDED = ("24.11", "26.05")


def recorded_until(version: str) -> tuple[str, ...]:
    """Return the recorded versions that are not newer than a version such as `25.05` or `24.11.5`, the newest first."""
    return tuple(one for one in reversed(RECORDED) if _release(one) <= _release(version))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
