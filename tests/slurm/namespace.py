"""The first process of the namespaces of RealSlurm: mounts, network, munge's folders. Standard library only.

    unshare --mount --pid --net --uts --ipc --fork --kill-child -- python -I -S namespace.py JSON

It prints `ready`, then waits for the end of its standard input. Its end is the end of all processes, mounts and links inside.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path("/mnt/merged")
DEVICES = (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9))


def main() -> None:
    wanted = json.loads(sys.argv[1])
    mount(wanted["tree"])
    network(wanted["host"], wanted["addresses"])
    for number in range(wanted["gpus"]):
        node(f"nvidia{number}", 195, number)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Thread(target=reap, daemon=True).start()
    sys.stdin.read()


def mount(tree: str) -> None:
    os.umask(0o022)  # users of the tree read what root makes
    sh("mount", "--make-rprivate", "/")
    sh("mount", "-t", "proc", "proc", "/proc")
    sh("mount", "-t", "tmpfs", "none", "/mnt")
    for name in ("upper", "work", "merged"):
        Path("/mnt", name).mkdir()
    options = f"lowerdir={tree},upperdir=/mnt/upper,workdir=/mnt/work"
    sh("mount", "-t", "overlay", "overlay", "-o", options, str(ROOT))
    sh("mount", "-t", "proc", "proc", str(ROOT / "proc"))
    sh("mount", "-t", "sysfs", "-o", "ro", "sysfs", str(ROOT / "sys"))
    sh("mount", "-t", "tmpfs", "none", str(ROOT / "dev"))
    sh("mount", "-t", "tmpfs", "none", str(ROOT / "run"))
    for name, minor in DEVICES:
        node(name, 1, minor)
    (ROOT / "dev/shm").mkdir()
    (ROOT / "dev/fd").symlink_to("/proc/self/fd")


def node(name: str, major: int, minor: int) -> None:
    path = ROOT / "dev" / name
    os.mknod(path, 0o20666, os.makedev(major, minor))
    path.chmod(0o666)


def network(host: str, addresses: list[str]) -> None:
    """All addresses are on one bridge: no router, no name server, no way out."""
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    sh("mount", "-t", "tmpfs", "none", "/run/netns")
    sh("hostname", host)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "br0", "type", "bridge")
    for address in addresses:
        sh("ip", "addr", "add", f"{address}/32", "dev", "br0")
    sh("ip", "link", "set", "br0", "up")
    sh("ip", "route", "add", "default", "dev", "br0", "src", addresses[0])


def reap() -> None:
    """Collect the processes whose parent ended."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
