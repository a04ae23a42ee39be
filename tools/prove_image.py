"""The image's way to Slurm, proved without AWS: Debian's source of Slurm is built and installed by the same tasks.

Source and packaging come as one tarball with a debian/ folder in it, as SchedMD's does. In a throw-away tree of trixie; `make image-proof` runs it as root. It needs the host's Debian
mirror and, on two cores, ten to twenty minutes. One JSON object with the figures is the answer.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpucluster import shell
from gpucluster.sandbox import bootstrap, images, mirrors, places
from gpucluster.sandbox.within import within

PACKAGES = ("slurm-client", "slurmctld", "slurmd", "sackd", "slurm-wlm-basic-plugins")
# scontrol wants a configuration before it tells its version, sackd tells none
DAEMONS = ("slurmctld", "slurmd")
SOURCE = "slurm-wlm"
HOUR = 3600.0


def main() -> int:
    """Build, install, ask the installed programs who they are."""
    scratch = Path(tempfile.mkdtemp(prefix="image-proof-", dir=places.CACHE))
    try:
        print(json.dumps(proved(scratch), indent=1, sort_keys=True))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def proved(scratch: Path) -> dict[str, object]:
    """What was built, in what time, and what the built programs say."""
    root = scratch / "root"
    _tree(root)
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


def _tree(root: Path) -> None:
    """A small system of the suite from the host's mirror, sources too, with the host's names."""
    lines = mirrors.debian_lines(mirrors.APT, suite=images.SUITE)
    options = mirrors.apt_options()
    debs = places.CACHE / "debs" / images.SUITE
    debs.mkdir(parents=True, exist_ok=True)
    say(f"making a tree of {images.SUITE}")
    argv = bootstrap.mmdebstrap_argv(
        suite=images.SUITE, packages=["ca-certificates", "munge", "python3"], lines=lines, options=options,
        debs=debs, root=root,
    )  # fmt: skip
    shell.run(argv, timeout_s=1800)
    sources = [x.replace("deb ", "deb-src ", 1) for x in lines]
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
    """Fetched by apt, which checks signatures; part by part, for a mirror may lack the newest version of one."""
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
    config.touch()  # a host's own must not change the proof
    env = {**bootstrap.ANSIBLE_ENV, "ANSIBLE_HOME": str(scratch / "ansible"), "ANSIBLE_CONFIG": str(config)}
    done = shell.run(["nice", "-n", "19", *argv], env=env, timeout_s=2 * HOUR, check=False)
    say("\n".join(done.stdout.splitlines()[-60:]))
    if done.code != 0:
        raise SystemExit("\n".join((done.stdout + done.stderr).splitlines()[-60:]))


def _chrooted(root: Path, argv: list[str]) -> str:
    return shell.run(within(["chroot", str(root), *argv], proc=root / "proc"), timeout_s=600).stdout


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
