"""The wheel alone, away from the checkout: it has the files that the commands read, and needs no others.

`bare` has only what `pip install .` installs: the packages of the project's `dependencies`, and theirs.
"""

import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that `pip install .` installs, and no others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder, seen = tmp_path_factory.mktemp("bare"), set[str]()
    wanted = [Requirement(text).name for text in project["dependencies"]]
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        needed = [Requirement(text) for text in found.requires or ()]
        wanted += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
        tops = {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder


def typed(wheel: Path, site: Path, *words: str, bare: Path | None = None) -> str:
    """Run the program of the wheel; with `bare` beside no other packages."""
    program = "import sys; from gpucluster.cli.__main__ import main; sys.exit(main())"
    path = str(wheel) if bare is None else f"{wheel}:{bare}"
    env = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, *(() if bare is None else ("-S",)), "-c", program, *words],
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


OFFLINE = (  # the verbs of README's *Commands without a network*, and those that read two specs or a site
    ("check", "old.yaml"),
    ("schema", "cluster"),
    ("plan", "old.yaml", "--explain"),
    ("plan", "kube.yaml"),
    ("render", "old.yaml", "--to", "slurm"),
    ("render", "kube.yaml", "--to", "kube"),
    ("diff", "old.yaml", "new.yaml"),
    ("diff", "/dev/null", "kube.yaml"),
    ("cost", "old.yaml"),
    ("env", "h200", "--cluster", "old.yaml"),
    ("jobs", "old.yaml"),
    ("init", "--name", "tiny", "--region", "us-east-1", "--machine", "g6.12xlarge", "--nodes", "4", "--source", "spot"),
    ("import", "slurm.conf", "cgroup.conf", "--to", "site.yaml"),
)  # fmt: skip


@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
def test_verb_works_after_pip_install(wheel: Path, site: Path, bare: Path, words: tuple[str, ...]) -> None:
    """`diff` needed PyYAML, also without resources."""
    (site / "kube.yaml").write_text((ROOT / "stacks/kube.yaml").read_text())
    (site / "slurm.conf").write_text(
        "ClusterName=a\nSlurmctldHost=h\nStateSaveLocation=/var/spool/slurmctld\nTaskPlugin=task/cgroup,task/affinity\n"
        "NodeName=n1 CPUs=4 RealMemory=4000\nPartitionName=p Nodes=n1 Default=YES\n"
    )
    (site / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n")
    typed(wheel, site, *words, bare=bare)


@pytest.mark.parametrize("folder", DATA)
def test_every_file_of_the_folder_is_in_the_wheel(wheel: Path, folder: str) -> None:
    shipped = {name for name in files(ROOT / folder) if "__pycache__" not in name}
    assert files(wheel / "gpucluster/_data" / folder).keys() == shipped
