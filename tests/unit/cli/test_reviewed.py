"""The spec that a sandbox is compared with."""

from pathlib import Path

import pytest
from support import builders
from support.spec_sources import SOURCE

from gpucluster.cli.reviewed import of_sandbox
from gpucluster.sandbox.state_dir import SandboxDir


@pytest.fixture
def home(tmp_path: Path) -> SandboxDir:
    home = SandboxDir(name="burst", root=tmp_path)
    home.path.mkdir()
    (tmp_path / "burst.yaml").write_text(builders.SPEC)
    home.begin(builders.a_plan(), tmp_path / "burst.yaml", real_times=False)
    return home


def test_sandbox_is_compared_with_the_spec_of_its_up(home: SandboxDir) -> None:
    found = of_sandbox(home, SOURCE, "a-bucket")
    assert found is not None
    assert (found.file, found.published) == (str(home.spec), SOURCE)
    assert "a-bucket" in found.publish


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "burst.yaml"), ("name: [", "burst.yaml"), ("naem: burst\n", "naem")]
)
def test_spec_that_cannot_be_compared_is_told(
    home: SandboxDir, capsys: pytest.CaptureFixture[str], text: str | None, reason: str
) -> None:
    """Regression: a spec that was not valid was said to be gone, without the reason."""
    home.spec.unlink()
    if text is not None:
        home.spec.write_text(text)
    assert of_sandbox(home, SOURCE, "") is None
    said = capsys.readouterr().err
    assert f"compared with the bundle that is published, of {SOURCE.name}: " in said
    assert reason in said
