"""`sandbox down`: the capsule ends, and with it everything; then its files go."""

import os
from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.sandbox import cgroups, host, ledger, places
from gpucluster.sandbox.ledger import Home


def down(name: str, *, root: Path = places.STATE_ROOT) -> None:
    """End the sandbox `name` and remove what it left; StateError if there is nothing of that name."""
    host.require_root()
    trees = host.cgroup_trees(Path("/proc/self/mountinfo").read_text())
    home = Home(name=name, root=root)
    groups = cgroups.sandbox_groups(trees, name)
    if not home.path.is_dir() and not any(group.is_dir() for group in groups):
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    ledger.end(home)
    lock = ledger.claim(home)  # so that no `up` starts in what we remove
    try:
        ledger.clean(home, trees)
    finally:
        os.close(lock)
