"""The image of plain machines, for a plan on hosts that exist: Debian, sshd, python3, sudo, and no Slurm.

`CACHE/images/bare-HASH/` holds `root/`, a tree, and `apt/`, a repository of everything that the playbook will install:
a machine has no way out of its capsule.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from ruamel.yaml import YAML

from gpucluster import shell
from gpucluster.files import shipped
from gpucluster.sandbox import bootstrap, mirrors, places
from gpucluster.sandbox.images import (
    SUITE,
    Image,
    Progress,
    build,
    digest_of,
    locked,
    play,
    prune,
    remove_unfinished,
    scrub,
)

PLAIN = ("dbus", "iproute2", "openssh-server", "python3", "sudo", "systemd", "systemd-sysv", "udev")
ANSIBLES = ("python3-apt",)  # what its apt module needs, and installs by itself
ADMIN_HOME = "/var/lib/admin"  # not below /home, which the cluster mounts
REPOSITORY = "/srv/sandbox-apt"
_FORMAT = "1"  # raise it when the way of building changes what is built
_SOURCES = ("bare.yml", "packages.yml", "tasks/cgroups.yml", "stand-ins/mount.nfs", "stand-ins/exportfs",
            "stand-ins/nfs-server.service")  # fmt: skip


def find_or_build(progress: Progress, *, admin: str = "admin", cache: Path = places.CACHE) -> Image:
    """Return the image of plain machines whose administrator is `admin`, built if it is not in the cache."""
    texts = [(shipped("playbooks") / name).read_text() for name in _SOURCES]
    name = f"bare-{digest_of(_FORMAT, SUITE, admin, *PLAIN, *ANSIBLES, *texts)}"
    folder = cache / "images"
    with locked(cache, progress):
        remove_unfinished(folder)
        if not (folder / name).exists():
            progress(f"building the image of plain machines: {SUITE}, sshd, python3 and sudo")
            build(folder / name, lambda scratch: _make(scratch, admin, cache), keep=("root", "apt"))
            prune(folder, "bare-*", name)
    return Image(name=name, layers=(folder / name / "root",))


def repository(image: Image) -> Path:
    """The apt repository beside the tree."""
    return image.layers[0].parent / "apt"


def _make(scratch: Path, admin: str, cache: Path) -> None:
    root, debs = scratch / "root", cache / "debs" / SUITE
    debs.mkdir(parents=True, exist_ok=True)
    argv = bootstrap.mmdebstrap_argv(
        suite=SUITE,
        packages=PLAIN,
        lines=mirrors.debian_lines(mirrors.APT, suite=SUITE),
        options=mirrors.apt_options(),
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
    """Every .deb that our builds have downloaded, and the index that apt wants of them."""
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
