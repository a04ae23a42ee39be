"""Images, cached by the hash of what they are made of: a base layer of packages and pins, a code layer of ours.

`CACHE/images/base-HASH/` and `code-HASH/` hold `root/` (a tree; the code layer's is an overlay's upper) and
the base also `manifest.txt`, what apt installed. A layer is built under another name and renamed at the end,
under one lock: an interruption leaves only what the next build removes.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from gpucluster import shell, shipment
from gpucluster.errors import GpuclusterError
from gpucluster.files import shipped
from gpucluster.sandbox import bootstrap, mirrors, places
from gpucluster.sandbox.within import Overlay

SUITE, PYTHON = "trixie", "3.13"  # Debian 13: Slurm 24.11, cloud-init 25.1, systemd 257
_OF_BASE = ("packages", "image", "sandbox", "tasks/cgroups", "tasks/folders", "tasks/venv")
_STAND_INS = ("mount.remote", "exportfs", "nfs-server.service")
_KEPT = 3  # code layers that stay for a quick way back
_FORMAT = "2"  # raise it when the way of building changes what is built
# mmdebstrap leaves them in the tree: this host's mirrors and proxies, perhaps with a password in the address
_OF_THE_HOST = ("etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A tree that machines are overlays of: `layers` from top to bottom."""

    name: str
    layers: tuple[Path, ...]


def find_or_build(progress: Progress, *, cache: Path = places.CACHE) -> Image:
    """Return the image of these sources, built if it is not in the cache."""
    found = shipment.sources()
    folder = cache / "images"
    base = f"base-{_base_digest(found)}"
    code = f"code-{digest_of(base, found.digest())}"
    image = Image(name=code, layers=(folder / code / "root", folder / base / "root"))
    with locked(cache, progress):
        remove_unfinished(folder)
        if not (folder / base).exists():
            progress(f"building the image's base: {SUITE}, Slurm and the pinned wheels")
            build(folder / base, lambda scratch: _base(found, scratch, cache))
        if not (folder / code).exists():
            progress("building the image's layer of our own code")
            build(folder / code, lambda scratch: _code(found, scratch, image.layers[1]))
            _prune(folder, image)
    return image


def cached(cache: Path = places.CACHE) -> tuple[tuple[str, int], ...]:
    """Return (name, bytes) of everything in the cache, for `sandbox status`."""
    parts = [p for kind in ("images", "debs", "wheels") for p in _children(cache / kind)]
    others = [p for p in _children(cache) if p.is_dir() and p.name not in ("images", "debs", "wheels")]
    return tuple((str(p.relative_to(cache)), _size(p)) for p in (*parts, *others))


def _base(found: shipment.Sources, scratch: Path, cache: Path) -> None:
    root, debs = scratch / "root", cache / "debs" / SUITE
    debs.mkdir(parents=True, exist_ok=True)
    argv = bootstrap.mmdebstrap_argv(
        suite=SUITE,
        packages=_packages(),
        lines=mirrors.debian_lines(mirrors.APT, suite=SUITE),
        options=mirrors.apt_options(),
        debs=debs,
        root=root,
    )
    shell.run(argv, timeout_s=1800)
    wheels = scratch / "wheels.tar"
    shipment.wheels_archive(found, cache=cache / "wheels", python=PYTHON, out=wheels)
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
    """Remove what a build leaves in a tree, and what it took from this host."""
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
    """Run a playbook of the image's."""
    config = scratch / "ansible.cfg"
    config.touch()  # a host's own must not change our images
    env = {**bootstrap.ANSIBLE_ENV, "ANSIBLE_HOME": str(scratch / "ansible"), "ANSIBLE_CONFIG": str(config)}
    done = shell.run(argv, env=env, timeout_s=1200, check=False)
    if done.code != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise GpuclusterError(f"the image's playbook failed:\n{tail}", next_step="run the same command again")


def clean(root: Path) -> None:
    """Ansible's own left-overs, and the wheels."""
    for path in ("tmp/.ansible", "root/.ansible", shipment.WHEELS.lstrip("/")):
        shutil.rmtree(root / path, ignore_errors=True)


def build(
    target: Path, make: Callable[[Path], None], *, keep: tuple[str, ...] = ("root", "manifest.txt")
) -> None:
    """Have `make` fill a folder of another name; it gets its own at the end."""
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
    """What a killed build left; the caller holds the lock."""
    for left in folder.glob("*.part"):  # we hold the lock, so its builder is dead
        shutil.rmtree(left, ignore_errors=True)


def _prune(folder: Path, image: Image) -> None:
    """Drop other bases, and all but the newest layers of our code."""
    needed = {layer.parent.name for layer in image.layers}
    layers = sorted(folder.glob("code-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    prune(folder, "base-*", *needed)
    prune(folder, "code-*", *needed, *(layer.name for layer in layers[:_KEPT]))


def prune(folder: Path, pattern: str, *keep: str) -> None:
    """Drop what matches, but for these and for what a living sandbox stands on."""
    used = "".join(p.read_text() for p in places.STATE_ROOT.glob("*/capsule.json"))
    for layer in folder.glob(pattern):
        if layer.name not in keep and layer.name not in used:
            shutil.rmtree(layer, ignore_errors=True)


def _packages() -> list[str]:
    text = (shipped("playbooks") / "packages.yml").read_text()
    return sorted(YAML(typ="safe").load(text)["packages"])  # pyright: ignore[reportUnknownMemberType]


def _base_digest(found: shipment.Sources) -> str:
    texts = [(shipped("playbooks") / f"{p}.yml").read_text() for p in _OF_BASE]
    texts += [(shipped("playbooks") / "stand-ins" / name).read_text() for name in _STAND_INS]
    fixed = bootstrap.variables(
        wheels_archive=Path("-"), code_archive=Path("-"), our_wheel="-", code_digest="-"
    )
    return digest_of(_FORMAT, SUITE, PYTHON, *texts, found.pins.read_text(), fixed)


def digest_of(*parts: str) -> str:
    """The name of what is made of these."""
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


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(f.lstat().st_size for d, _, files in os.walk(path) for f in (Path(d) / n for n in files))
