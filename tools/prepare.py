"""Prepare this machine for `make demo` and `make test`: first the checks, then apt. Standard library only.

The cheap checks come before any installation, so a new user sees at once what is missing.
"""

import fcntl
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

DISK_GIB = (
    10  # GiB: images 1, .deb cache 0.3, Go's module cache and build 3, venv 1.2, machines 0.3, and a reserve
)
MEMORY_GIB = 4  # GiB: pyright 2.9, the workers of pytest 0.7 each, ten machines 0.5 (measured)
PROCESSES = 2000  # a machine has 40 with its threads, the engine 60; Go's compiler starts many
PATIENT = (
    "-o",
    "DPkg::Lock::Timeout=600",
    "-o",
    "Acquire::Retries=3",
)  # another apt may run, a mirror may fail
LOCKS = Path("/var/lib/gpucluster-tests")
WAIT = {"test", "test-all"}  # targets whose clusters wait for room
EXTRA = {  # besides the sandbox's own needs: program or file -> the Debian package with it
    "git": "git",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",  # Go uses only the system's certificates
}
OF_TEST = {  # a browser opens the reports, ssh reaches the hosts, cc compiles a stand-in of a plugin; the demo needs none
    "chromium": "chromium",
    "ssh": "openssh-client",
    f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1": "libfaketime",  # a stand-in for a wrong clock
    "shellcheck": "shellcheck",
    "cc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
}
OF_GUEST = {  # a guest with Debian's kernel
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "/sbin/depmod": "kmod",
    "/usr/sbin/nft": "nftables",
}
SANDBOX = Path(__file__).parent.parent / "src/gpucluster/sandbox/requirements.py"
REQUIREMENTS = runpy.run_path(str(SANDBOX))
MACHINES = REQUIREMENTS["LEAST_MACHINES"]  # of one cluster: each test file waits until there is room


def main() -> int:
    for check in (check_root, check_system, check_disk, check_memory, check_processes, check_inotify):
        problem = check()
        if problem:
            print(f"prepare: {problem}", file=sys.stderr)
            return 2
    return install(missing())


def check_root() -> str | None:
    if os.geteuid() == 0:
        return None
    return "the sandbox makes namespaces and mounts, so it needs root; next: sudo make " + " ".join(
        sys.argv[1:] or ["demo"]
    )


def check_system() -> str | None:
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        return "the sandbox is made of Debian packages; next: run it on a Debian 12 machine"
    if sys.version_info < (3, 11):  # noqa: UP036  it runs on whatever python3 the machine has
        return f"Python {sys.version_info.major}.{sys.version_info.minor} found, 3.11 or newer needed; next: use Debian 12 or newer"
    return None


def check_disk() -> str | None:
    places = (Path(), Path("/var"))
    short = [p for p in places if shutil.disk_usage(p).free < DISK_GIB * 2**30]
    if not short:
        return None
    free = shutil.disk_usage(short[0]).free / 2**30
    return f"{short[0].resolve()} has {free:.1f} GiB free, {DISK_GIB} needed; next: make room there"


def check_memory() -> str | None:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) for words in lines if words[0] == "MemAvailable:") / 2**20
    if free >= MEMORY_GIB:
        return None
    return f"{free:.1f} GiB of memory are available, {MEMORY_GIB} needed; next: end what uses it"


def check_processes() -> str | None:
    used = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    limits = (Path("/proc/sys/kernel") / name for name in ("pid_max", "threads-max"))
    limit = min(int(path.read_text()) for path in limits)
    if limit - used >= PROCESSES:
        return None
    return f"kernel.pid_max and kernel.threads-max allow {limit} processes and threads, {used} are in use, {PROCESSES} more needed; next: end some, or sysctl -w kernel.pid_max=65536"


def check_inotify() -> str | None:
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    used, needed = REQUIREMENTS["inotify_used"](), MACHINES * REQUIREMENTS["INOTIFY_EACH"]
    if limit - used >= needed:
        return None
    if limit >= needed and WAIT & set(sys.argv[1:]) and other_tests_run():
        words = f"prepare: {used} of {limit} inotify instances are in use, because other tests run here: clusters wait for room"
        print(words, file=sys.stderr)
        return None
    return f"fs.inotify.max_user_instances is {limit}, {used} are in use, {needed} more needed; next: sysctl -w fs.inotify.max_user_instances=512"


def other_tests_run(folder: Path = LOCKS) -> bool:
    """Whether another run of the tests holds the room of a cluster (tests/support/machine_locks.py)."""
    return any(map(_is_held, folder.glob("slot-*.lock")))


def _is_held(path: Path) -> bool:
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def missing() -> list[str]:
    packages = REQUIREMENTS["missing"]()
    targets = set(sys.argv[1:])
    wanted = EXTRA | (OF_TEST if {"test", "test-all", "test-slurm", "soak"} & targets else {})
    wanted |= OF_GUEST if "test-all" in targets else {}
    packages += [
        package for name, package in wanted.items() if shutil.which(name) is None and not Path(name).exists()
    ]
    try:
        import ensurepip  # noqa: F401, PLC0415  Debian cuts it out of python3 and ships it in python3-venv
        import venv  # noqa: F401, PLC0415
    except ImportError:
        packages.append("python3-venv")
    return packages


def install(packages: list[str]) -> int:
    if not packages:
        return 0
    print(f"prepare: installing {' '.join(packages)}", file=sys.stderr)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (
        ["apt-get", *PATIENT, "update", "-qq"],
        ["apt-get", *PATIENT, "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(argv, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"prepare: {' '.join(argv)} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
