"""`accept`: which warnings a spec silences, why, and until when."""

import pytest
from support.builders import a_spec_text

from gpucluster import catalog
from gpucluster.spec.problem import Level, Problem
from gpucluster.spec.reading import inspect_text

SUPPORT = ", {id: slurm-support, because: it has facts of its own, until: 2099-12-31}"  # of `accept`


def problems(*changes: tuple[str, str]) -> list[Problem]:
    return list(inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load()).problems)


def of_support(entry: str) -> list[Problem]:
    return problems((SUPPORT, f", {entry}"))


def test_security_warning_accepted_without_an_end_is_a_warning() -> None:
    (found,) = of_support("{id: slurm-support, because: it has facts of its own}")
    assert (found.level, found.id, found.path) == (Level.WARNING, "accept-without-end", "accept[2]")
    assert found.message == (
        "'slurm-support' is about security, so its acceptance needs an end: write `until: YYYY-MM-DD`, the last day of it"
    )


def test_security_warning_accepted_until_a_date_is_silent() -> None:
    """`check` reads no clock: it is silent after that day, too."""
    assert of_support("{id: slurm-support, because: it has facts of its own, until: 2026-01-01}") == []


def test_other_warnings_need_no_end_and_can_have_one() -> None:
    """`head-state` and `no-way-in` of the spec have none."""
    assert problems() == []
    assert problems(("because: no person uses it", "because: no person uses it, until: 2099-12-31")) == []


@pytest.mark.parametrize(
    "where",
    [
        ("aws:\n", "access: {ssh_from: [0.0.0.0/0]}\naws:\n"),
        ("head:\n", "kubernetes: {version: '1.36', control_plane: eks, api_from: [0.0.0.0/0]}\nhead:\n"),
    ],
    ids=["ssh", "Kubernetes' API"],
)
def test_network_open_to_all_needs_an_end(where: tuple[str, str]) -> None:
    found = problems(where, ("accept: [", "accept: [{id: open-to-all, because: it is a test}, "))
    assert "open-to-all" not in [one.id for one in found]
    assert [one.path for one in found if one.id == "accept-without-end"] == ["accept[0]"]


def test_the_warning_of_an_acceptance_without_an_end_cannot_be_accepted() -> None:
    found = of_support(
        "{id: slurm-support, because: it has facts of its own}, {id: accept-without-end, because: we like it}"
    )
    assert [one.id for one in found] == ["accept-without-end", "accept-unused"]
