"""What a machine must have to carry a sandbox: the one list, which `tools/prepare.py` reads by its path.

Standard library only, and nothing of ours: that script runs before any venv is there.
"""

import shutil
from pathlib import Path

PROGRAMS = {  # program -> the Debian package that brings it
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
INOTIFY_EACH = 7  # inotify instances of one booted machine: systemd 5, dbus 1 (measured), and 1 to spare


def missing(path: str | None = None) -> list[str]:
    """The Debian packages that are not there, sorted."""
    programs = {package for name, package in PROGRAMS.items() if shutil.which(name, path=path) is None}
    return sorted(programs | {package for file, package in FILES.items() if not file.exists()})
