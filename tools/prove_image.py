"""The image's way to Slurm, proved without AWS: a Debian source package of Slurm is built and installed by the same tasks.

On a throw-away overlay over the sandbox's trixie tree; `make image-proof` runs it as root. It needs the host's Debian
mirror and, on two cores, a quarter of an hour. One JSON object with the figures is the answer.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from gpucluster import shell
from gpucluster.files import shipped
from gpucluster.sandbox import bootstrap, images, mirrors
from gpucluster.sandbox.within import Overlay, within

PACKAGES = ("slurm-client", "slurmctld", "slurmd", "sackd", "slurm-wlm-basic-plugins")
HOUR = 3600.0


def main() -> int:
    """Build, install, ask the installed programs who they are."""
    base = images.find_or_build(say).layers[-1]
    scratch = Path(tempfile.mkdtemp(prefix="image-proof-", dir=base.parent.parent.parent))
    try:
        shell.run(
            ["cp", "-al", str(base), str(scratch / "base")]
        )  # links: another build may drop the layer meanwhile
        print(json.dumps(proved(scratch / "base", scratch), indent=1, sort_keys=True))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def proved(base: Path, scratch: Path) -> dict[str, object]:
    """What was built, in what time, and what the built programs say."""
    at = scratch / "merged"
    overlay = Overlay(lower=(base,), upper=scratch / "root", work=scratch / "work", at=at)
    _sources(scratch / "root")
    variables = scratch / "variables.json"
    variables.write_text(json.dumps(_variables()))
    begun = time.monotonic()
    _play(overlay, variables, scratch)
    took = time.monotonic() - begun
    root = scratch / "root"
    debs = sorted((root / "usr/src/gpucluster-slurm").glob("*.deb"))
    said = _chrooted(overlay, ["slurmctld", "-V"]).strip(), _chrooted(overlay, ["slurmd", "-V"]).strip()
    built = _chrooted(
        overlay,
        ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Abbrev}\\n", *PACKAGES],
    )
    return {
        "seconds": round(took),
        "packages_made": {deb.name: deb.stat().st_size for deb in debs},
        "installed": built.splitlines(),
        "says": said,
        "held": _chrooted(overlay, ["apt-mark", "showhold"]).split(),
    }


def _variables() -> dict[str, object]:
    return {
        "slurm_source": {"package": "slurm-wlm"},
        "slurm_packages": list(PACKAGES),
        "slurm_build": "/usr/src/gpucluster-slurm",
        "slurm_mark": "/opt/gpucluster/slurm",
        "slurm_digest": "a proof",
        "slurm_keep": True,
    }


def _sources(root: Path) -> None:
    """The host's mirror, sources too, and its names: only in this overlay."""
    lines = mirrors.debian_lines(mirrors.APT, suite=images.SUITE)
    etc = root / "etc"
    (etc / "apt/apt.conf.d").mkdir(parents=True)
    sources = [
        x.replace("deb ", "deb-src ", 1) for x in lines if f" {images.SUITE} " in x
    ]  # mirrors lack other suites'
    (etc / "apt/sources.list").write_text("".join(f"{x}\n" for x in (*lines, *sources)))
    (etc / "apt/apt.conf.d/99proof").write_text("".join(f"{option};\n" for option in mirrors.apt_options()))
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, etc / name)


def _play(overlay: Overlay, variables: Path, scratch: Path) -> None:
    argv = bootstrap.ansible_argv("slurm.yml", root=overlay.at, variables=variables, overlay=overlay)
    config = scratch / "ansible.cfg"
    config.touch()  # a host's own must not change the proof
    env = {**bootstrap.ANSIBLE_ENV, "ANSIBLE_HOME": str(scratch / "ansible"), "ANSIBLE_CONFIG": str(config)}
    done = shell.run(["nice", "-n", "19", *argv], env=env, timeout_s=2 * HOUR, check=False)
    say("\n".join(done.stdout.splitlines()[-60:]))
    if done.code != 0:
        raise SystemExit("\n".join((done.stdout + done.stderr).splitlines()[-60:]))


def _chrooted(overlay: Overlay, argv: list[str]) -> str:
    return shell.run(within(["chroot", str(overlay.at), *argv], overlay=overlay)).stdout


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    assert shipped("playbooks").is_dir()
    sys.exit(main())
