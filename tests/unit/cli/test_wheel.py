"""The wheel alone, away from the checkout: it has the files that the commands read, and needs no others."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = ("templates", "playbooks", "policies")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with two specs, outside of the checkout."""
    text = (ROOT / "stacks/burst.yaml").read_text()
    (tmp_path / "old.yaml").write_text(text)
    (tmp_path / "new.yaml").write_text(text.replace("idle: 5m", "idle: 9m"))
    return tmp_path


def typed(wheel: Path, site: Path, *words: str) -> str:
    """Run the program of the wheel."""
    program = "import sys; from gpucluster.cli.__main__ import main; sys.exit(main())"
    env = {**os.environ, "PYTHONPATH": str(wheel), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=site,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_commands_of_the_wheel_read_its_own_files(wheel: Path, site: Path) -> None:
    where = [sys.executable, "-c", "import gpucluster; print(gpucluster.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(wheel), "PYTHONSAFEPATH": "1"}
    loaded = subprocess.run(where, cwd=site, env=env, capture_output=True, text=True, check=True).stdout
    assert loaded.startswith(str(wheel))
    assert "old.yaml: ok" in typed(wheel, site, "check", "old.yaml")
    assert typed(wheel, site, "schema") == (ROOT / "schema/cluster.json").read_text()
    typed(wheel, site, "render", "old.yaml", "--to", "rendered")
    assert files(site / "rendered") == files(ROOT / "tests/golden/burst")
    assert "pools[h200].idle: 5m -> 9m" in typed(wheel, site, "diff", "old.yaml", "new.yaml")


@pytest.mark.parametrize("folder", DATA)
def test_every_file_of_the_folder_is_in_the_wheel(wheel: Path, folder: str) -> None:
    shipped = {name for name in files(ROOT / folder) if "__pycache__" not in name}
    assert files(wheel / "gpucluster/_data" / folder).keys() == shipped
