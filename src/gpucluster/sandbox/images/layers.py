"""Images in two cached layers, named by the hash of their inputs: packages and pins, then our code.

`CACHE/images/base-HASH/` and `code-HASH/` hold `root/` (a tree; the code layer's is an overlay's upper) and
the base also `manifest.txt`, what apt installed. A layer is built under another name and renamed at the end,
under one lock: an interruption leaves only what the next build removes.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from gpucluster import shell, shipment
from gpucluster.errors import GpuclusterError
from gpucluster.files import shipped
from gpucluster.sandbox import paths
from gpucluster.sandbox.capsule.private_mounts import Overlay
from gpucluster.sandbox.images import bootstrap, mirrors

_OF_BASE = ("packages", "image", "sandbox", "tasks/cgroups", "tasks/folders", "tasks/venv")
_STAND_INS = ("mount.remote", "exportfs", "nfs-server.service", "nvidia-smi")
_KEPT = 4  # code layers that are kept, of all versions of Slurm
_FRESH_S = 3600  # an `up` of another checkout may have found the layer and not started its capsule yet
_FORMAT = "2"  # raise it when a change of the build changes the result
# mmdebstrap leaves them in the tree: mirrors and proxies of this host, possibly with a password
_OF_THE_HOST = ("etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list", bootstrap.PREFERENCES)
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Debian and its Python. `slurm_from`: a later release from which only Slurm comes, with its libraries."""

    suite: str
    python: str
    slurm_from: str | None = None

    @property
    def name(self) -> str:
        return self.suite if self.slurm_from is None else f"{self.suite} with the Slurm of {self.slurm_from}"

    def lines(self) -> tuple[str, ...]:
        """Return the `deb` lines from the host's mirrors; HostError if it has none."""
        found = mirrors.debian_lines(mirrors.APT, suite=self.suite)
        if self.slurm_from is None:
            return found
        later = mirrors.debian_lines(mirrors.APT, suite=self.slurm_from)  # testing has no -updates yet
        return (*found, *(line for line in later if f" {self.slurm_from} " in line))

    def options(self) -> tuple[str, ...]:
        """Return apt's options. Testing changes daily, and a mirror may be some days behind."""
        late = () if self.slurm_from is None else ('Acquire::Check-Valid-Until "false"',)
        return tuple(dict.fromkeys((*mirrors.apt_options(), *late)))

    def preferences(self) -> str:
        """Return apt's preferences: all from the release, but Slurm and hwloc, which it needs newer."""
        if self.slurm_from is None:
            return ""
        pin = f"Pin: release n={self.slurm_from}\nPin-Priority: "
        return f"Package: *\n{pin}100\n\nPackage: src:slurm-wlm src:hwloc\n{pin}990\n"


RELEASES = {  # by `apt-cache madison slurmctld`, 2026-11-23; forky alone lacks sssd these days
    "24.11": Release(suite="trixie", python="3.13"),  # Debian 13: 24.11.5, cloud-init 25.1, systemd 257
    "26.05": Release(suite="trixie", python="3.13", slurm_from="forky"),  # 26.05.5
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A tree that machines are overlays of: `layers` from top to bottom."""

    name: str
    layers: tuple[Path, ...]


def release_of(version: str) -> Release:
    """Return the release with this version of Slurm; GpuclusterError if no release of Debian has it."""
    if version not in RELEASES:
        raise GpuclusterError(
            f"no release of Debian that the sandbox knows has Slurm {version}; it has {', '.join(RELEASES)}",
            next_step=f"rehearse a copy of the spec with one of {', '.join(RELEASES)}",
        )
    return RELEASES[version]


def find_or_build(progress: Progress, *, slurm: str, cache: Path = paths.CACHE) -> Image:
    """Return the image of these sources with this version of Slurm; build it if it is not cached."""
    found, release = shipment.sources(), release_of(slurm)
    folder = cache / "images"
    base = f"base-{slurm}-{_base_digest(found, release)}"
    code = f"code-{digest_of(base, found.digest())}"
    image = Image(name=code, layers=(folder / code / "root", folder / base / "root"))
    with locked(cache, progress):
        remove_unfinished(folder)
        if not (folder / base).exists():
            progress(f"building the image's base: {release.name}, and the pinned wheels")
            build(folder / base, lambda scratch: _base(found, release, scratch, cache))
        if not (folder / code).exists():
            progress("building the image's layer of our own code")
            build(folder / code, lambda scratch: _code(found, scratch, image.layers[1]))
            _prune(folder, image, slurm)
        mark_used(image)
    return image


def _base(found: shipment.Sources, release: Release, scratch: Path, cache: Path) -> None:
    root, debs = scratch / "root", cache / "debs" / (release.slurm_from or release.suite)
    debs.mkdir(parents=True, exist_ok=True)
    argv = bootstrap.mmdebstrap_argv(
        suite=release.suite,
        packages=_packages(),
        lines=release.lines(),
        options=release.options(),
        preferences=release.preferences(),
        debs=debs,
        root=root,
    )
    shell.run(argv, timeout_s=1800)
    wheels = scratch / "wheels.tar"
    shipment.wheels_archive(found, cache=cache / "wheels", python=release.python, out=wheels)
    values = scratch / "variables.json"
    values.write_text(
        bootstrap.variables(wheels_archive=wheels, code_archive=Path("-"), our_wheel="-", code_digest="-")
    )
    play(bootstrap.ansible_argv("image.yml", root=root, variables=values, tags="system"), scratch)
    play(bootstrap.ansible_argv("sandbox.yml", root=root, variables=values), scratch)
    listing = shell.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show"]).stdout
    (scratch / "manifest.txt").write_text(listing)
    scrub(root)


def scrub(root: Path) -> None:
    """Remove from a tree what a build leaves, and what comes from this host."""
    for path in _OF_THE_HOST:
        (root / path).unlink(missing_ok=True)
    clean(root)


def _code(found: shipment.Sources, scratch: Path, base: Path) -> None:
    archive = scratch / "code.tar"
    ours = shipment.code_archive(found, scratch=scratch, out=archive)
    values = scratch / "variables.json"
    values.write_text(
        bootstrap.variables(
            wheels_archive=Path("-"), code_archive=archive, our_wheel=ours, code_digest=found.digest()
        )
    )
    at = scratch / "merged"
    overlay = Overlay(lower=(base,), upper=scratch / "root", work=scratch / "work", at=at)
    play(
        bootstrap.ansible_argv("image.yml", root=at, variables=values, tags="code", overlay=overlay), scratch
    )
    clean(scratch / "root")
    (scratch / "root").chmod(0o755)


def play(argv: list[str], scratch: Path) -> None:
    """Run a playbook on the image."""
    config = scratch / "ansible.cfg"
    config.touch()  # a configuration of the host must not change our images
    env = {**bootstrap.ANSIBLE_ENV, "ANSIBLE_HOME": str(scratch / "ansible"), "ANSIBLE_CONFIG": str(config)}
    done = shell.run(argv, env=env, timeout_s=1200, check=False)
    if done.code != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise GpuclusterError(f"the image's playbook failed:\n{tail}", next_step="run the same command again")


def clean(root: Path) -> None:
    """Remove the temporary files of Ansible, and the wheels."""
    for path in ("tmp/.ansible", "root/.ansible", shipment.WHEELS.lstrip("/")):
        shutil.rmtree(root / path, ignore_errors=True)


def build(
    target: Path, make: Callable[[Path], None], *, keep: tuple[str, ...] = ("root", "manifest.txt")
) -> None:
    """Let `make` fill a temporary folder; it is renamed at the end."""
    os.umask(0o022)  # its files have Debian's modes, whatever the caller's mask is
    scratch = target.with_name(f"{target.name}.part")
    scratch.mkdir(parents=True)
    try:
        make(scratch)
        for leaving in [p for p in scratch.iterdir() if p.name not in keep]:
            shutil.rmtree(leaving) if leaving.is_dir() else leaving.unlink()
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove the remains of a killed build; the caller holds the lock."""
    for left in folder.glob("*.part"):  # we hold the lock, so its builder is dead
        shutil.rmtree(left, ignore_errors=True)


def _prune(folder: Path, image: Image, slurm: str) -> None:
    """Remove other bases with this version of Slurm, and all but the newest layers of our code."""
    needed = {layer.parent.name for layer in image.layers}
    layers = sorted(folder.glob("code-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    prune(folder, f"base-{slurm}-*", *needed)
    prune(folder, "code-*", *needed, *(layer.name for layer in layers[:_KEPT]))


def mark_used(image: Image) -> None:
    """Write down that a sandbox is about to use the image: until its capsule runs, nothing else tells."""
    for layer in image.layers:
        os.utime(layer.parent)


def prune(folder: Path, pattern: str, *keep: str) -> None:
    """Remove what matches, except these, those that a living sandbox uses, and those found or built in the last hour."""
    used = "".join(p.read_text() for p in paths.STATE_ROOT.glob("*/capsule.json"))
    fresh = time.time() - _FRESH_S
    for layer in folder.glob(pattern):
        if layer.name not in keep and layer.name not in used and layer.stat().st_mtime < fresh:
            shutil.rmtree(layer, ignore_errors=True)


def _packages() -> list[str]:
    text = (shipped("playbooks") / "packages.yml").read_text()
    return sorted(YAML(typ="safe").load(text)["packages"])  # pyright: ignore[reportUnknownMemberType]


def _base_digest(found: shipment.Sources, release: Release) -> str:
    texts = [(shipped("playbooks") / f"{p}.yml").read_text() for p in _OF_BASE]
    texts += [(shipped("playbooks") / "stand-ins" / name).read_text() for name in _STAND_INS]
    fixed = bootstrap.variables(
        wheels_archive=Path("-"), code_archive=Path("-"), our_wheel="-", code_digest="-"
    )
    return digest_of(
        _FORMAT, release.name, release.preferences(), release.python, *texts, found.pins.read_text(), fixed
    )


def digest_of(*parts: str) -> str:
    """The name of an image with these inputs."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@contextmanager
def locked(cache: Path, progress: Progress) -> Generator[None]:
    """One build at a time on this machine."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of the image")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
