"""What `diff` says of keys of `extra` and `remove` whose effect on jobs it does not know: that it does not know it."""

import pytest
from support.builders import LAB, changed
from support.reviewed import a_diff

from gpucluster.gitops.report.opening import opening

_VERSION, _GPU = 'version: "26.05"\n', "pools: [h100], default: true"


def _slurm(extra: str) -> tuple[str, str]:
    return _VERSION, f"{_VERSION}  {extra}\n"


def _partition(extra: str) -> tuple[str, str]:
    return _GPU, f"{_GPU}, {extra}"


UNKNOWN = {
    "slurm.conf": (_slurm("extra: {SlurmdTimeout: 5, InactiveLimit: 60}"), "InactiveLimit and SlurmdTimeout"),
    "a partition": (_partition("extra: {RootOnly: YES}"), "RootOnly"),
    "a default of ours that leaves": (_partition("remove: [DefMemPerCPU]"), "DefMemPerCPU"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_key_without_a_known_effect_is_named(case: str) -> None:
    """Regression: "jobs, sessions and data stay as they are", also with `RootOnly: YES`."""
    change, names = UNKNOWN[case]
    old, new = LAB, changed(LAB, change)
    for sides in ((old, new), (new, old)):
        found = a_diff(*sides)
        said = f"what {names} does to jobs is not known here: slurm.conf(5) has it"
        assert found.effects is not None
        assert found.effects.running == f"go on; {said}"
        assert opening(found) == f"running jobs: {said}"


@pytest.mark.parametrize(
    "change",
    [_slurm("extra: {KillWait: 60}"), _partition("extra: {MaxNodes: 2}"), _partition("extra: {State: DOWN}")],
)
def test_key_with_a_known_effect_is_told_by_it(change: tuple[str, str]) -> None:
    found = a_diff(LAB, changed(LAB, change)).effects
    assert found is not None
    assert "is not known here" not in found.running
