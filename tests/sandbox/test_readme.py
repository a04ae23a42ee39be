"""Every command of the README's path to AWS, in its order and as written, except for the cluster's name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, gpucluster, is_ours
from support.readme import commands, instead

NAME = "readme"

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Path]:
    """stacks/burst.yaml with the test's own name. The sandbox is taken down at the end."""
    spec = tmp_path / f"{NAME}.yaml"
    spec.write_text((ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {NAME}\n", 1))
    yield spec
    gpucluster("sandbox", "down", NAME, check=False)


def test_commands_of_the_path_to_aws_work(stack: Path, tmp_path: Path) -> None:
    lines = [instead(line, burst=NAME) for line in (*commands("Path 1"), *commands("Day 2"))]
    lines.sort(key=lambda line: "down" in line)  # the commands of day 2 come before `down`
    assert [line[1] for line in lines if line[:1] == ["gpucluster"]].count("validate") == 1
    for line in lines:
        words = [str(stack) if word == f"stacks/{NAME}.yaml" else word for word in line]
        words = [str(tmp_path / word) if word.startswith(("report.", "junit.")) else word for word in words]
        assert words[0] == "gpucluster"
        gpucluster(*words[1:], timeout=1000)
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert (tmp_path / "junit.xml").stat().st_size > 1000
    assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


def test_commands_of_pulumi_by_hand_work() -> None:
    """The stack keeps its name, because `pulumi up` reads stacks/NAME.yaml: two always-on nodes and a spare start."""
    lines = commands("Run Pulumi yourself")
    assert any("pulumi up" in word for line in lines for word in line)
    try:
        for words in lines:
            assert words[0] == "gpucluster"
            gpucluster(*words[1:], timeout=1000)
    finally:
        if is_ours("steady"):
            gpucluster("sandbox", "down", "steady", check=False)
