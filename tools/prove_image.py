"""Prove the image's build of Slurm without AWS: the same tasks build and install Debian's source of Slurm.

    .venv/bin/python tools/prove_image.py 26.05

Source and packaging are one tarball with a debian/ folder, as SchedMD's is. The build runs in a temporary tree of trixie; the source is of the
Debian release that has this version of Slurm. `make image-proof` runs it as root for the default version.
It needs the host's Debian mirror and ten to twenty minutes on two cores. It prints one JSON object with the figures.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpucluster import catalog, shell
from gpucluster.sandbox import paths
from gpucluster.sandbox.capsule.private_mounts import within
from gpucluster.sandbox.images import bootstrap, layers, mirrors

PACKAGES = ("slurm-client", "slurmctld", "slurmd", "sackd", "slurm-wlm-basic-plugins")
# scontrol needs a configuration before it prints its version; sackd does not
DAEMONS = ("slurmctld", "slurmd")
SOURCE = "slurm-wlm"
HOUR = 3600.0


def main() -> int:
    """Build, install, and read the versions of the installed programs."""
    version = sys.argv[1] if len(sys.argv) > 1 else catalog.load().slurm_default
    scratch = Path(tempfile.mkdtemp(prefix="image-proof-", dir=paths.CACHE))
    try:
        print(json.dumps(proved(scratch, layers.release_of(version)), indent=1, sort_keys=True))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def proved(scratch: Path, release: layers.Release) -> dict[str, object]:
    """Return the packages, the time, and the versions of the built programs."""
    root = scratch / "root"
    _tree(root, release)
    variables = scratch / "variables.json"
    variables.write_text(json.dumps(_variables(_tarball(root, scratch))))
    begun = time.monotonic()
    _play(root, variables, scratch)
    took = time.monotonic() - begun
    debs = sorted((root / "usr/src/gpucluster-slurm").glob("*.deb"))
    form = "${Package} ${Version} ${db:Status-Abbrev}\n"
    return {
        "seconds": round(took),
        "packages_made": {deb.name: deb.stat().st_size for deb in debs},
        "installed": _chrooted(root, ["dpkg-query", "--show", "--showformat", form, *PACKAGES]).splitlines(),
        "says": [_chrooted(root, [program, "-V"]).strip() for program in DAEMONS],
        "held": _chrooted(root, ["apt-mark", "showhold"]).split(),
    }


def _tree(root: Path, release: layers.Release) -> None:
    """Make a small system of the suite from the host's mirror, with Slurm's sources and the host's name resolution."""
    lines = mirrors.debian_lines(mirrors.APT, suite=release.suite)
    options = release.options()
    debs = paths.CACHE / "debs" / release.suite
    debs.mkdir(parents=True, exist_ok=True)
    report(f"making a tree of {release.suite}")
    argv = bootstrap.mmdebstrap_argv(
        suite=release.suite, packages=["ca-certificates", "munge", "python3"], lines=lines, options=options,
        debs=debs, root=root,
    )  # fmt: skip
    shell.run(argv, timeout_s=1800)
    later = release.lines() if release.slurm_from is None else release.lines()[len(lines) :]
    sources = [x.replace("deb ", "deb-src ", 1) for x in later]
    etc = root / "etc"
    (etc / "apt/sources.list").write_text("".join(f"{x}\n" for x in (*lines, *sources)))
    (etc / "apt/apt.conf.d/99proof").write_text("".join(f"{option};\n" for option in options))
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, etc / name)


def _variables(archive: Path) -> dict[str, object]:
    return {
        "slurm_archive": str(archive),
        "slurm_packages": list(PACKAGES),
        "slurm_build": "/usr/src/gpucluster-slurm",
        "slurm_mark": "/opt/gpucluster/slurm",
        "slurm_digest": "a proof",
        "slurm_keep": True,
    }


def _tarball(root: Path, scratch: Path) -> Path:
    """Download by apt, which checks signatures; each part alone, because a mirror may lack the newest version of one."""
    _chrooted(root, ["apt-get", "update"])
    shown = _chrooted(root, ["apt-cache", "showsrc", SOURCE]).splitlines()
    versions = sorted({line.split()[1] for line in shown if line.startswith("Version:")}, reverse=True)
    for kind in ("--tar-only", "--diff-only"):
        argv = [
            "sh",
            "-c",
            'cd /usr/src && for v; do apt-get source --download-only "$0" "'
            + SOURCE
            + '=$v" && exit; done; exit 1',
        ]
        _chrooted(root, [*argv, kind, *versions])
    fetched = root / "usr/src"
    tree = scratch / "slurm"
    tree.mkdir()
    shell.run(
        ["tar", "-xf", str(next(fetched.glob("*.orig.tar.*"))), "-C", str(tree), "--strip-components=1"]
    )
    shell.run(["rm", "-rf", str(tree / "debian")])
    shell.run(["tar", "-xf", str(next(fetched.glob("*.debian.tar.*"))), "-C", str(tree)])
    shell.run(["tar", "-cjf", str(scratch / "slurm.tar.bz2"), "-C", str(scratch), "slurm"], timeout_s=600)
    return scratch / "slurm.tar.bz2"


def _play(root: Path, variables: Path, scratch: Path) -> None:
    argv = bootstrap.ansible_argv("slurm.yml", root=root, variables=variables)
    config = scratch / "ansible.cfg"
    config.touch()  # the host's own variables must not change the proof
    env = {**bootstrap.ANSIBLE_ENV, "ANSIBLE_HOME": str(scratch / "ansible"), "ANSIBLE_CONFIG": str(config)}
    done = shell.run(["nice", "-n", "19", *argv], env=env, timeout_s=2 * HOUR, check=False)
    report("\n".join(done.stdout.splitlines()[-60:]))
    if done.code != 0:
        raise SystemExit("\n".join((done.stdout + done.stderr).splitlines()[-60:]))


def _chrooted(root: Path, argv: list[str]) -> str:
    return shell.run(within(["chroot", str(root), *argv], proc=root / "proc"), timeout_s=600).stdout


def report(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
