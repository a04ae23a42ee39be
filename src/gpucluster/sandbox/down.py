"""`sandbox down`: end the capsule, then remove its files."""

import os
from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.sandbox import host_checks, paths, state_dir
from gpucluster.sandbox.capsule import cgroups
from gpucluster.sandbox.state_dir import SandboxDir


def down(name: str, *, root: Path = paths.STATE_ROOT) -> None:
    """End the sandbox `name` and remove its files; StateError if it does not exist."""
    host_checks.require_root()
    trees = host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text())
    home = SandboxDir(name=name, root=root)
    groups = cgroups.sandbox_groups(trees, name)
    if not home.path.is_dir() and not any(group.is_dir() for group in groups):
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    state_dir.end(home)
    lock = state_dir.claim(home)  # so that no `up` starts in the folder that we remove
    try:
        state_dir.clean(home, trees)
    finally:
        os.close(lock)
