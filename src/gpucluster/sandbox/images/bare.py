"""The image of plain machines for existing hosts: Debian, sshd, python3, sudo, no Slurm.

`CACHE/images/bare-HASH/` holds `root/`, a tree, and `apt/`, a repository of everything that the playbook installs, because
a machine cannot reach the internet from its capsule.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from ruamel.yaml import YAML

from gpucluster import shell
from gpucluster.catalog import mount_options
from gpucluster.files import shipped
from gpucluster.sandbox import paths
from gpucluster.sandbox.images import bootstrap
from gpucluster.sandbox.images.layers import (
    Image,
    Progress,
    Release,
    build,
    digest_of,
    locked,
    mark_used,
    play,
    prune,
    release_of,
    remove_unfinished,
    scrub,
)

PLAIN = ("dbus", "iproute2", "openssh-server", "python3", "sudo", "systemd", "systemd-sysv", "udev")
ANSIBLES = ("python3-apt",)  # needed and installed by its apt module
ADMIN_HOME = "/var/lib/admin"  # not below /home, which the cluster mounts
REPOSITORY = "/srv/sandbox-apt"
_FORMAT = "1"  # raise it when a change of the build changes the result
_SOURCES = ("bare.yml", "packages.yml", "tasks/cgroups.yml", "stand-ins/mount.nfs", "stand-ins/exportfs",
            "stand-ins/nfs-server.service", "stand-ins/nvidia-smi")  # fmt: skip


def find_or_build(
    progress: Progress, *, slurm: str, admin: str = "admin", cache: Path = paths.CACHE
) -> Image:
    """Return the image of plain machines, whose repository has this version of Slurm, with the administrator `admin`.

    It is built if it is not cached.
    """
    release = release_of(slurm)
    files = [shipped("playbooks") / name for name in _SOURCES]
    catalog = Path(mount_options.__file__).parent
    files += [catalog / "mount_options.py", catalog / "data" / "mount-options.json"]
    texts = [file.read_text() for file in files]
    name = f"bare-{slurm}-{digest_of(_FORMAT, release.name, release.preferences(), admin, *PLAIN, *ANSIBLES, *texts)}"
    folder = cache / "images"
    image = Image(name=name, layers=(folder / name / "root",))
    with locked(cache, progress):
        remove_unfinished(folder)
        if not (folder / name).exists():
            progress(f"building the image of plain machines: {release.name}, sshd, python3 and sudo")
            build(folder / name, lambda scratch: _make(release, scratch, admin, cache), keep=("root", "apt"))
            prune(folder, f"bare-{slurm}-*", name)
        mark_used(image)
    return image


def repository(image: Image) -> Path:
    """The apt repository beside the tree."""
    return image.layers[0].parent / "apt"


def _make(release: Release, scratch: Path, admin: str, cache: Path) -> None:
    root, debs = scratch / "root", cache / "debs" / f"bare-{release.slurm_from or release.suite}"
    debs.mkdir(parents=True, exist_ok=True)
    argv = bootstrap.mmdebstrap_argv(
        suite=release.suite,
        packages=PLAIN,
        lines=release.lines(),
        options=release.options(),
        preferences=release.preferences(),
        debs=debs,
        root=root,
        later=(*ANSIBLES, *_site_packages()),
    )
    shell.run(argv, timeout_s=1800)
    values = scratch / "variables.json"
    values.write_text(bootstrap.bare_variables(admin=admin, home=ADMIN_HOME, repository=REPOSITORY))
    play(bootstrap.ansible_argv("bare.yml", root=root, variables=values), scratch)
    scrub(root)
    _repository(debs, scratch / "apt")


def _site_packages() -> tuple[str, ...]:
    text = (shipped("playbooks") / "packages.yml").read_text()
    wanted: dict[str, list[str]] = YAML(typ="safe").load(text)["host_packages"]  # pyright: ignore[reportUnknownMemberType]
    return tuple(sorted({package for packages in wanted.values() for package in packages}))


def _repository(debs: Path, to: Path) -> None:
    """Every downloaded .deb, and apt's index of them."""
    to.mkdir()
    found = sorted(debs.glob("*.deb"))
    for deb in found:
        os.link(deb, to / deb.name.replace("%3a", "_"))  # apt would unquote the name
    (to / "Packages").write_text("\n".join(_entries(sorted(to.glob("*.deb")))))


def _entries(debs: Iterable[Path]) -> Iterable[str]:
    for deb in debs:
        control = shell.run(["dpkg-deb", "--field", str(deb)]).stdout.strip()
        sha256 = hashlib.sha256(deb.read_bytes()).hexdigest()
        yield f"{control}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {sha256}\n"
