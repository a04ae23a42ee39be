"""The programs and kernel features that a sandbox needs. `tools/prepare.py` reads this file by its path.

Standard library only, and no import of gpucluster: that script runs before a venv exists.
"""

import shutil
from pathlib import Path

PROGRAMS = {  # program -> Debian package
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FILES = {KEYRING: "debian-archive-keyring"}
INOTIFY_EACH = 7  # inotify instances of one booted machine: systemd 5, dbus 1 (measured), and 1 spare
LEAST_MACHINES = 6  # a head, a gang of four and its replacement: the least that a rehearsal needs


def missing(path: str | None = None) -> list[str]:
    """The missing Debian packages, sorted."""
    programs = {package for name, package in PROGRAMS.items() if shutil.which(name, path=path) is None}
    return sorted(programs | {package for file, package in FILES.items() if not file.exists()})


def inotify_used() -> int:
    """Count the inotify instances of root's processes: the limit is per user, over all namespaces."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == 0:
                count += sum(str(fd.readlink()) == "anon_inode:inotify" for fd in (process / "fd").iterdir())
        except OSError:
            continue  # the process ended, or may not be read
    return count
