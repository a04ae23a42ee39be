"""What goes from this machine onto others: the pinned wheels, and our own code laid out at its places.

An image (the sandbox's, an AMI) takes all of it. A host that exists takes only what its agent needs, which is Python.
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
from gpucluster.plan import names

WHEELS = "/opt/gpucluster/wheels"  # in the image, while it is built; on a host for good
CODE_MARK = "/opt/gpucluster/code"  # the digest of our code that is there
GUARD_UNIT = "gpucluster-guard.service"
_HOOKS = {
    "resume": "hook.py",
    "suspend": "hook.py",
    "resume_fail": "hook.py",
    "prolog_slurmctld": "waiter.py",
}
_OF_HOSTS = (f"etc/systemd/system/{names.AGENT_UNIT}", "etc/systemd/system/munge.service.d/",
             "etc/systemd/system/slurmctld.service.d/", "etc/systemd/system/slurmd.service.d/")  # fmt: skip
_IGNORED = frozenset({"__pycache__", ".ruff_cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where our own files stand in the checkout."""

    root: Path

    @property
    def pins(self) -> Path:
        return self.root / "requirements" / "node.txt"

    @property
    def package(self) -> Path:
        return self.root / "src" / "gpucluster"

    def code_files(self) -> tuple[Path, ...]:
        """Every file that our wheel, the hooks or the units are made of, sorted."""
        folders = (self.package, self.root / "templates", self.root / "playbooks")
        found = (p for f in folders for p in f.rglob("*") if p.is_file() and not _IGNORED & set(p.parts))
        return tuple(sorted((*found, self.root / "pyproject.toml")))

    def digest(self) -> str:
        """One hash over the names and bytes of `code_files`."""
        total = hashlib.sha256()
        for path in self.code_files():
            total.update(f"{path.relative_to(self.root)}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()


def image_variables() -> dict[str, object]:
    """What the image's playbook takes from us, wherever it runs: paths, units and folders, from plan.names."""
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
        "agent_unit": names.AGENT_UNIT,
        "guard_unit": GUARD_UNIT,
        "folders": [
            *({"path": path, "owner": "root", "mode": "0755"} for path in root),
            *({"path": path, "owner": "slurm", "mode": "0700"} for path in slurm),
            {"path": "/var/spool/slurmd", "owner": "root", "mode": "0755"},
            {"path": "/var/log/slurm", "owner": "slurm", "mode": "0755"},
        ],
    }


def sources() -> Sources:
    """Return the checkout that we run from; an installed wheel has no sources to build an image of."""
    root = checkout()
    if root is None:
        raise HostError(
            "the sandbox builds its image from our sources, and this is an installed package",
            next_step="clone the repository and run `make install` there",
        )
    return Sources(root=root)


def wheels_archive(found: Sources, *, cache: Path, python: str, out: Path) -> None:
    """Download the pinned pure-Python wheels (once), and write them with the pins as one tar."""
    pins = found.pins.read_bytes()
    folder = cache / hashlib.sha256(pins).hexdigest()[:16]
    if not (folder / "complete").exists():
        shell.run(download_argv(found.pins, folder, python=python), timeout_s=900)
        (folder / "complete").touch()
    wheels = [Artifact(p.name, p.read_bytes()) for p in sorted(folder.glob("*.whl"))]
    write_tar(out, (*wheels, Artifact("node.txt", pins)))


def download_argv(pins: Path, folder: Path, *, python: str) -> list[str]:
    """The host's pip, asked for what the image's Python will install."""
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
    """Build our wheel, write it with the hooks and units as one tar to unpack at `/`; return the wheel's path there."""
    return _with_wheel(found, ours(found), scratch=scratch, out=out)


def host_archive(found: Sources, *, scratch: Path, out: Path) -> str:
    """The same for a host that exists: no hook, no guard, no daemon, no cloud-init."""
    return _with_wheel(found, of_hosts(found), scratch=scratch, out=out)


def of_hosts(found: Sources) -> tuple[Artifact, ...]:
    """The agent's unit, and what it needs of the units of munge and Slurm."""
    return tuple(a for a in ours(found) if a.path.startswith(_OF_HOSTS))


def ours(found: Sources) -> tuple[Artifact, ...]:
    """The hooks under all their names, the units and what they start, each at its place below `/`."""
    return (*_hooks(found), *_units(found))


def _with_wheel(found: Sources, files: Iterable[Artifact], *, scratch: Path, out: Path) -> str:
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch)]
    shell.run(argv, cwd=found.root, timeout_s=120)
    wheel = next(scratch.glob("gpucluster-*.whl"))
    at = f"{WHEELS}/{wheel.name}"
    write_tar(out, (Artifact(at.lstrip("/"), wheel.read_bytes()), *files))
    return at


def write_tar(out: Path, artifacts: Iterable[Artifact]) -> None:
    """Write plain files, sorted, owner root, time 0."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for artifact in sorted(artifacts):
            member = tarfile.TarInfo(artifact.path)
            member.size, member.mode, member.mtime = len(artifact.content), artifact.mode, 0
            tar.addfile(member, io.BytesIO(artifact.content))


def _hooks(found: Sources) -> Iterable[Artifact]:
    for name, file in _HOOKS.items():
        content = (found.package / "elastic" / file).read_bytes()
        yield Artifact(f"{names.HOOK_DIR}/{name}".lstrip("/"), content, 0o755)


def _units(found: Sources) -> Iterable[Artifact]:
    """The tree that mirrors `/`: units, drop-ins, and what they start."""
    folder = found.package / "node" / "units"
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not _IGNORED & set(p.parts)):
        place = path.relative_to(folder)
        if len(place.parts) > 1:  # beside the folders stands their README
            runs = f"/{place.parent}" == names.HOOK_DIR
            yield Artifact(str(place), path.read_bytes(), 0o755 if runs else 0o644)
