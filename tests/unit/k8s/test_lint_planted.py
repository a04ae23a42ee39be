"""Planted mistakes: each folder of `planted/` has a manifest with one mistake, and the same without it.

The first line of a mistake names its rule. `# input: whole` means that the manifests are all of a cluster.
"""

from pathlib import Path

import pytest

from gpucluster.cli.lint_input import read_all
from gpucluster.k8s.lint import Facts, check

FOLDERS = sorted(path for path in (Path(__file__).parent / "planted").iterdir() if path.is_dir())
OF_THE_ISSUE = frozenset(  # the classes that issue 15 names
    {
        "wildcard-role", "admin-binding", "pod-security", "literal-secret", "reference", "metadata-hops", "budget", "pre-stop",
        "gang-retries", "node-expiry", "scaler-metric", "scaler-request", "node-pool-limit", "node-pool-taint", "host-domain",
        "no-efa", "no-nccl-variables", "no-shm", "rendezvous", "pod-names", "claim-sharing", "volume-mode", "gpu-count",
        "two-gpu-ways", "two-quotas", "image-tag",
    }
)  # fmt: skip
LEAST = 156


def rules_of(file: Path, *, whole: bool) -> set[str]:
    got = read_all([file])
    return {one.rule for one in (*got.findings, *check(got.documents, Facts(kubernetes="1.36", whole=whole)))}


def mark(folder: Path) -> tuple[str, bool]:
    """The rule that must speak, and whether the input is whole."""
    written = (folder / "mistake.yaml").read_text()
    rule, _, rest = written.removeprefix("# rule: ").partition("\n")
    return rule, rest.startswith("# input: whole\n")


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_mistake_is_found_and_its_sound_twin_has_no_finding(folder: Path) -> None:
    rule, whole = mark(folder)
    assert rules_of(folder / "mistake.yaml", whole=whole) == {rule}
    assert rules_of(folder / "sound.yaml", whole=whole) == set()


def test_classes_of_the_issue_are_planted() -> None:
    assert len(FOLDERS) >= LEAST
    assert {mark(folder)[0] for folder in FOLDERS} >= OF_THE_ISSUE
