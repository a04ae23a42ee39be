"""Check that only programs of packages and of the image get the rights of root or of a service when a user runs them.

The file system of / is walked, and no other. Files of people, and of container images below their stores, do not count.
"""

import shlex
from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Query, QueryOutput, failed, listed, passed, warned
from gpucluster.checks.root_rights import IMAGE_MADE
from gpucluster.plan import names
from gpucluster.text import short

WALK_S = 120
STORES = (  # of container images, with setuid programs that run in a container only
    *("/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/enroot", "/var/lib/kubelet"),
    *("/var/lib/lxc", "/var/lib/lxd", "/var/lib/machines", "/var/snap", "/snap"),
)
OF_INSTALLERS = ("/usr/bin/nvidia-modprobe",)  # of NVIDIA's .run file, which is no package
_SHELLS = (  # no package gives one of these more rights: whoever runs it, runs anything
    *("ash", "awk", "bash", "busybox", "cp", "csh", "dash", "env", "find", "gawk", "ksh", "less", "ln", "mawk", "mv", "nano", "node"),
    *("perl", "python", "rbash", "rsync", "ruby", "sed", "sh", "tar", "tee", "vi", "vim", "zsh"),
)  # fmt: skip
_WALK = """\
import glob, json, os, re, stat, subprocess, sys, time

root, limit, made, stores, shells = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4].split(), sys.argv[5].split()
end, device = time.monotonic() + limit, os.lstat(root).st_dev
marks = [os.lstat(path).st_ctime for path in glob.glob(made)]
newer = max(marks) if marks else 0


def rights(path, seen):
    found = []
    if seen.st_mode & stat.S_ISUID and seen.st_uid < 1000:
        found.append("setuid")
    if seen.st_mode & stat.S_ISGID and seen.st_mode & stat.S_IXGRP and seen.st_gid < 1000:
        found.append("setgid")
    if seen.st_mode & 0o111:
        try:
            os.getxattr(path, "security.capability", follow_symlinks=False)
            found.append("capability")
        except OSError:
            pass
    return found


def packaged(path):
    other = path[4:] if path.startswith("/usr/") else "/usr" + path
    for one in (path, other):
        for argv in (["dpkg-query", "--search", one], ["rpm", "-qf", one]):
            try:
                done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30)
            except OSError:
                continue
            if done.returncode == 0 and any(not line.startswith("diversion ") for line in done.stdout.splitlines()):
                return True
    return False


found, looked, folders = [], 0, [root]
while folders and time.monotonic() < end:
    folder = folders.pop()
    try:
        entries = list(os.scandir(folder))
    except OSError:
        continue
    for entry in entries:
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(seen.st_mode):
            if seen.st_dev == device and entry.path not in stores:
                folders.append(entry.path)
        elif stat.S_ISREG(seen.st_mode):
            looked += 1
            if seen.st_ctime > newer and (kinds := rights(entry.path, seen)):
                found.append((entry.path, kinds))
shell = re.compile("(?:" + "|".join(shells) + ")[0-9.]*")
bad = {path: kinds for path, kinds in sorted(found)[:200] if shell.fullmatch(os.path.basename(path)) or not packaged(path)}
print(json.dumps({"ended": not folders, "looked": looked, "files": bad}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetuidWant:
    """`scripts`: the site's own run at boot, and what is added may be theirs: a warning. `root`: where the walk begins."""

    scripts: bool = False
    root: str = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileged:
    """Path -> setuid, setgid, capability. `ended`: whether the walk saw all; `looked`: at how many files."""

    files: dict[str, tuple[str, ...]]
    ended: bool
    looked: int


def query_setuid(want: SetuidWant) -> tuple[Query, ...]:
    words = (want.root, str(WALK_S), IMAGE_MADE, " ".join(STORES), " ".join(_SHELLS))
    return (
        Query(
            argv=("nice", "-n", "19", f"{names.VENV}/bin/python", "-I", "-S", "-c", _WALK, *words),
            limit_s=WALK_S + 60.0,
        ),
    )


def parse_setuid(got: tuple[QueryOutput, ...]) -> Privileged:
    whole = json_fields.table(got[0].text())
    paths = json_fields.part_if_any(whole, "files")
    return Privileged(
        files={path: json_fields.strings(paths, path) for path in paths},
        ended=json_fields.flag(whole, "ended"),
        looked=int(json_fields.number(whole, "looked")),
    )


def evaluate_setuid(found: Privileged, want: SetuidWant) -> CheckResult:
    """Culprits are the paths."""
    expected = "setuid, setgid and capabilities on programs of packages and the image only"
    bad = {path: kinds for path, kinds in found.files.items() if path not in OF_INSTALLERS}
    if bad:
        words = [f"{short(path, 100)} has {' and '.join(kinds)}" for path, kinds in bad.items()]
        remedy = "on {machine}: " + "; ".join(_undo(path, kinds) for path, kinds in bad.items())
        if want.scripts:
            return warned(listed(words, 4), expected, remedy)
        return failed(listed(words, 4), expected, tuple(bad), remedy)
    if not found.ended:
        return warned(f"{found.looked} files seen in {WALK_S} s, and not all", expected)
    return passed(expected)


def _undo(path: str, kinds: tuple[str, ...]) -> str:
    quoted = shlex.quote(path)
    steps = (
        *((f"chmod ug-s {quoted}",) if {"setuid", "setgid"} & set(kinds) else ()),
        *((f"setcap -r {quoted}",) if "capability" in kinds else ()),
    )
    return "; ".join(steps)
