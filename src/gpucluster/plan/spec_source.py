"""The spec that a bundle was made of: it says whether what is published is what was reviewed. Pure."""

import hashlib
from dataclasses import dataclass
from pathlib import PurePath

from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan

MOST_BYTES = 4096  # of the file; it is read from machines


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSource:
    """A spec: its bytes, the plan that a version of gpucluster makes of it, and its commit. Digests are SHA-256."""

    spec: str  # of the file's bytes
    plan: str  # of the plan's JSON
    commit: str  # the last one that changed the file; empty without git, or before the first
    dirty: bool  # the file is not as HEAD has it
    version: str  # of gpucluster

    @property
    def name(self) -> str:
        """`commit 0123456789ab, with uncommitted changes`."""
        if not self.commit:
            return f"no commit, spec {self.spec[:12]}" if self.spec else "a spec that it does not name"
        return f"commit {self.commit[:12]}{', with uncommitted changes' if self.dirty else ''}"

    def warning(self, file: PurePath) -> str:
        """Return what is said before a dirty spec is applied."""
        return f"{file} has changes that are in no commit: the bundle records this, and `validate` shows it"


def plan_digest(plan: ClusterPlan) -> str:
    return hashlib.sha256(codec.dumps(plan).encode()).hexdigest()


def artifact(source: SpecSource) -> Artifact:
    """Return the file of the bundle."""
    return Artifact(names.SOURCE_FILE, codec.dumps(source).encode())


def read(content: bytes) -> SpecSource:
    """Parse the file of a bundle; ValueError if it is not one."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"{names.SOURCE_FILE} has more than {MOST_BYTES} bytes")
    return codec.loads_whole(SpecSource, content)
