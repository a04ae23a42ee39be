"""The rules by which lint refuses a text of manifests, as a part of a cluster."""

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read


def errors_of(written: str, kubernetes: str = "1.36") -> set[str]:
    """Return the rules of the errors."""
    got = read(written, "a.yaml")
    found = (*got.findings, *check(got.documents, Facts(kubernetes=kubernetes, whole=False)))
    return {one.rule for one in found if one.level is Severity.ERROR}


def assert_refused(rule: str, taken: str, old: str, new: str) -> None:
    """The text has no error, and with `new` in the one place of `old` it has the error of this rule alone."""
    assert taken.count(old) == 1, f"{old!r} stands in {taken.count(old)} places"
    assert (before := errors_of(taken)) == set(), before
    assert (after := errors_of(taken.replace(old, new))) == {rule}, after
