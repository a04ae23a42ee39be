"""`accept`: which warnings a spec silences, why, and until when."""

from datetime import date

import pytest
from support.builders import a_lab_text, a_spec_text

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


UNTIL = (", until: 2099-12-31", ", until: 2027-05-31")


@pytest.mark.parametrize(("today", "shown"), [(date(2027, 5, 31), []), (date(2027, 6, 1), ["slurm-support"])])
def test_warning_is_shown_again_after_the_last_day(today: date, shown: list[str]) -> None:
    report = inspect_text(a_spec_text(UNTIL), "spec.yaml", catalog.load(), today)
    assert [one.id for one in report.problems] == shown
    for one in report.problems:
        assert one.level is Level.WARNING
        assert one.path == "slurm.version"
        assert one.message.startswith("SchedMD's support of Slurm 24.11 ended in 2026-05: ")
        assert one.message.endswith("; accepted until 2027-05-31, by accept[2]: it has facts of its own")


def test_later_acceptance_of_the_same_warning_counts() -> None:
    more = ("}]\n", "}, {id: slurm-support, because: we move in summer, until: 2027-08-31}]\n")
    text = a_spec_text(UNTIL, more)
    assert not inspect_text(text, "spec.yaml", catalog.load(), date(2027, 8, 31)).problems
    (found,) = inspect_text(text, "spec.yaml", catalog.load(), date(2027, 9, 1)).problems
    assert found.message.endswith("; accepted until 2027-08-31, by accept[3]: we move in summer")


def test_without_a_day_an_acceptance_does_not_end() -> None:
    assert problems((", until: 2099-12-31", ", until: 2000-01-01")) == []


DEBIAN = "Debian 13 keeps 24.11 in its own support"
AMI = ("aws:\n", "aws:\n  image: {ami: ami-0123456789abcdef0}\n")


def support_because(reason: str, *changes: tuple[str, str]) -> list[Problem]:
    return problems(("because: it has facts of its own", f'because: "{reason}"'), *changes)


@pytest.mark.parametrize("reason", [DEBIAN, "the DISTRIBUTION's own fixes", "Red  Hat supports it"])
def test_reason_that_a_fact_contradicts_is_refused(reason: str) -> None:
    """X5: on AWS our image has SchedMD's release, and no package of a distribution."""
    (found,) = support_because(reason)
    assert (found.level, found.id, found.path) == (Level.ERROR, "reason-untrue", "accept[2].because")
    assert found.message == (
        "on AWS `gpucluster image build` installs SchedMD's own release of Slurm 24.11, and no distribution mends it: "
        "write a reason that names no distribution"
    )


def test_reason_that_no_fact_contradicts_is_taken() -> None:
    """An AMI of the site may have Slurm of its distribution; so may a host."""
    assert support_because("our redesign is not tried with 26.05 yet") == []
    assert support_because(DEBIAN, AMI) == []
    accept = f'accept: [{{id: slurm-support, because: "{DEBIAN}", until: 2099-12-31}}]\n'
    text = a_lab_text(('"26.05"', '"24.11"'), ("partitions:\n", f"{accept}partitions:\n"))
    assert not inspect_text(text, "lab.yaml", catalog.load()).problems
