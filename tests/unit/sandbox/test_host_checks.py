"""Requirements of the sandbox: each missing one is a sentence with the command that fixes it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpucluster.errors import HostError
from gpucluster.sandbox import host_checks, requirements
from gpucluster.sandbox.host_checks import CgroupMode, CgroupTree, Facts

ROOT = Path(__file__).parents[3]
HYBRID = """\
25 24 0:22 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/systemd/agent,name=systemd
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/devices rw shared:12 - cgroup cgroup rw,devices
"""
UNIFIED = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
)
LEGACY = "35 31 0:32 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"

GOOD = Facts(
    uid=0,
    system="linux",
    kernel=(6, 1),
    missing=(),
    free_gib=50.0,
    inotify_limit=128,
    inotify_used=2,
    trees=host_checks.cgroup_trees(HYBRID),
    refused=None,
)


def test_capable_host_reports_the_number_of_machines():
    found = host_checks.check(GOOD)
    assert (found.cgroup, found.machines) == (CgroupMode.HYBRID, 18)


LACKS = {
    "another system comes before anything else": (
        {"system": "darwin", "uid": 5},
        "Linux namespaces",
        "Debian 12",
    ),
    "an ordinary user is told to use sudo": ({"uid": 1000}, "needs root", "sudo "),
    "missing packages come with the whole apt line": (
        {"missing": ("iproute2", "mmdebstrap")},
        "Debian packages are missing: iproute2 mmdebstrap",
        "apt-get update && apt-get install --no-install-recommends -y iproute2 mmdebstrap",
    ),
    "a full disk is told with its figure": ({"free_gib": 1.25}, "1.2 GiB free", "make room"),
    "an old kernel cannot end a machine whole": (
        {"kernel": (5, 10)},
        "the kernel is 5.10",
        "Debian 12's own kernel",
    ),
    "a host without a v2 tree is told how to mount one": (
        {"trees": host_checks.cgroup_trees(LEGACY)},
        "no cgroup v2 tree",
        "mount -t cgroup2",
    ),
    "a container that may not make namespaces is no host": (
        {"refused": "unshare: Operation not permitted"},
        "unshare: Operation not permitted",
        "not inside a container",
    ),
    "too few inotify instances come with the sysctl line": (
        {"inotify_limit": 128, "inotify_used": 87},
        "fs.inotify.max_user_instances is 128 and 87 are in use; 6 machines need 42",
        "sysctl -w fs.inotify.max_user_instances=512",
    ),
}


@pytest.mark.parametrize(("change", "said", "step"), LACKS.values(), ids=LACKS)
def test_each_missing_requirement_is_refused(change, said, step):
    with pytest.raises(HostError) as refused:
        host_checks.check(replace(GOOD, **change))
    assert said in refused.value.message
    assert step in refused.value.next_step


MODES = {
    "v1 controllers beside a v2 tree are hybrid": (HYBRID, CgroupMode.HYBRID),
    "one v2 tree is unified": (UNIFIED, CgroupMode.UNIFIED),
    "v1 alone is legacy": (LEGACY, CgroupMode.LEGACY),
    "a named v1 hierarchy without controllers is still unified": (
        UNIFIED + "36 31 0:9 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n",
        CgroupMode.UNIFIED,
    ),
}


@pytest.mark.parametrize(("mountinfo", "mode"), MODES.values(), ids=MODES)
def test_cgroup_mode_is_read_from_the_mounts(mountinfo, mode):
    assert host_checks.cgroup_mode(host_checks.cgroup_trees(mountinfo)) is mode


def test_mount_options_are_not_controllers_and_v2_tree_is_last():
    assert host_checks.cgroup_trees(HYBRID) == (
        CgroupTree(mount=Path("/sys/fs/cgroup/cpu,cpuacct"), controllers=frozenset({"cpu", "cpuacct"})),
        CgroupTree(mount=Path("/sys/fs/cgroup/devices"), controllers=frozenset({"devices"})),
        CgroupTree(mount=Path("/sys/fs/cgroup/systemd"), controllers=frozenset({"systemd"})),
        CgroupTree(mount=Path("/sys/fs/cgroup/unified"), controllers=frozenset()),
    )


def test_bare_machine_lacks_every_package_by_name(tmp_path):
    assert set(requirements.PROGRAMS.values()) <= set(requirements.missing(str(tmp_path)))


def test_prepare_reads_the_same_list_with_nothing_but_the_base_system(tmp_path):
    """`-I -S`: no virtual environment, and no package of ours on the path."""
    code = "import runpy, sys; print(*runpy.run_path(sys.argv[1])['missing']())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(ROOT / "tools/prepare.py")],
        capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert set(done.stdout.split()) >= {"git", *requirements.PROGRAMS.values()}
