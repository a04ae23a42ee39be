"""The files for other machines: archives of the pinned wheels and of our own code.

An image (of the sandbox, or an AMI) gets all of them. An existing host gets only the files of its agent.
"""

import hashlib
import io
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpucluster import shell
from gpucluster.artifacts import Artifact
from gpucluster.errors import HostError
from gpucluster.files import checkout
from gpucluster.plan import machine_files, names

WHEELS = "/opt/gpucluster/wheels"  # in an image only during the build; on an existing host always
CODE_MARK = "/opt/gpucluster/code"  # has the digest of the installed code
_IGNORED = frozenset({"__pycache__", ".ruff_cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The places of our own files in the checkout."""

    root: Path

    @property
    def pins(self) -> Path:
        return self.root / "requirements" / "node.txt"

    @property
    def package(self) -> Path:
        return self.root / "src" / "gpucluster"

    def code_files(self) -> tuple[Path, ...]:
        """Return every file of our wheel, the hooks and the units, sorted."""
        folders = (self.package, self.root / "templates", self.root / "playbooks")
        found = (p for f in folders for p in f.rglob("*") if p.is_file() and not _IGNORED & set(p.parts))
        return tuple(sorted((*found, self.root / "pyproject.toml")))

    def digest(self) -> str:
        """Return one hash over the names and bytes of `code_files`."""
        total = hashlib.sha256()
        for path in self.code_files():
            total.update(f"{path.relative_to(self.root)}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()


def image_variables() -> dict[str, object]:
    """Return the variables of the image playbook: paths, units and folders from plan.names."""
    root = (names.SLURM_ETC, names.HOOK_DIR, names.STATE_DIR, str(Path(names.USER_DATA_FILE).parent))
    slurm = (
        str(Path(names.JOURNAL).parent),
        names.SPOOL,
        *(f"{names.SPOOL}/{name}" for name in ("tmp", "new", "cur")),
        "/var/spool/slurmctld",
    )
    return {
        "venv": names.VENV,
        "wheels": WHEELS,
        "code_mark": CODE_MARK,
        "command": names.MACHINE_COMMAND,
        "command_link": names.COMMAND_LINK,
        "agent_unit": names.AGENT_UNIT,
        "guard_unit": names.GUARD_UNIT,
        "folders": [
            *({"path": path, "owner": "root", "mode": "0755"} for path in root),
            *({"path": path, "owner": "slurm", "mode": "0700"} for path in slurm),
            {"path": "/var/spool/slurmd", "owner": "root", "mode": "0755"},
            {"path": "/var/log/slurm", "owner": "slurm", "mode": "0755"},
        ],
    }


def sources() -> Sources:
    """Return the checkout that this program runs from; HostError for an installed wheel, which has no sources."""
    root = checkout()
    if root is None:
        raise HostError(
            "an image is built from the sources, and this is an installed package",
            next_step="clone the repository and run `make install` there",
        )
    return Sources(root=root)


def wheels_archive(found: Sources, *, cache: Path, python: str, out: Path) -> None:
    """Download the pinned pure-Python wheels once, and write them with the pins into one tar file."""
    pins = found.pins.read_bytes()
    folder = cache / hashlib.sha256(pins).hexdigest()[:16]
    if not (folder / "complete").exists():
        shell.run(download_argv(found.pins, folder, python=python), timeout_s=900)
        (folder / "complete").touch()
    wheels = [Artifact(p.name, p.read_bytes()) for p in sorted(folder.glob("*.whl"))]
    write_tar(out, (*wheels, Artifact("node.txt", pins)))


def download_argv(pins: Path, folder: Path, *, python: str) -> list[str]:
    """Return the command of pip that downloads the wheels for the image's Python."""
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        f"--python-version={python}",
        f"--dest={folder}",
        f"--requirement={pins}",
    ]


def code_archive(found: Sources, *, scratch: Path, out: Path) -> str:
    """Build our wheel, and write it with hooks and units into one tar file to unpack at `/`. Return the wheel's path below `/`."""
    return _with_wheel(found, ours(found), scratch=scratch, out=out)


def host_archive(found: Sources, *, scratch: Path, out: Path) -> str:
    """Build the same archive for an existing host: without hooks, guard, daemon and cloud-init."""
    return _with_wheel(found, of_hosts(found), scratch=scratch, out=out)


def of_hosts(found: Sources) -> tuple[Artifact, ...]:
    """Return the unit of the agent, the timer of accounts, drop-ins for munge and Slurm, logrotate's file, the health programs, and the command."""
    return tuple(a for a in ours(found) if f"/{a.path}".startswith(machine_files.OF_HOSTS))


def ours(found: Sources) -> tuple[Artifact, ...]:
    """Return hooks, units and their programs, each with its path below `/`."""
    return (*_hooks(found), *_units(found))


def _with_wheel(found: Sources, files: Iterable[Artifact], *, scratch: Path, out: Path) -> str:
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch)]
    shell.run(argv, cwd=found.root, timeout_s=120)
    wheel = next(scratch.glob("gpucluster-*.whl"))
    at = f"{WHEELS}/{wheel.name}"
    write_tar(out, (Artifact(at.lstrip("/"), wheel.read_bytes()), *files))
    return at


def write_tar(out: Path, artifacts: Iterable[Artifact]) -> None:
    """Write plain files, sorted, with owner root and time 0."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for artifact in sorted(artifacts):
            member = tarfile.TarInfo(artifact.path)
            member.size, member.mode, member.mtime = len(artifact.content), artifact.mode, 0
            tar.addfile(member, io.BytesIO(artifact.content))


def _hooks(found: Sources) -> Iterable[Artifact]:
    for name, file in machine_files.HOOKS.items():
        content = (found.package / "elastic" / file).read_bytes()
        yield Artifact(f"{names.HOOK_DIR}/{name}".lstrip("/"), content, 0o755)


def _units(found: Sources) -> Iterable[Artifact]:
    """Yield the files of agent/units, a tree that mirrors `/`."""
    folder = found.package / "agent" / "units"
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not _IGNORED & set(p.parts)):
        place = path.relative_to(folder)
        if len(place.parts) > 1:  # the README beside the folders is not shipped
            runs = f"/{place.parent}" == names.HOOK_DIR
            yield Artifact(str(place), path.read_bytes(), 0o755 if runs else 0o644)
