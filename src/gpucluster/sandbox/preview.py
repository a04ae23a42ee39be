"""`sandbox preview`: what an `up` of the stored plan would change, compared with Pulumi's state or with the cloud."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster import engine
from gpucluster.plan.model import ClusterPlan
from gpucluster.sandbox import host_checks, paths, state_dir

if TYPE_CHECKING:
    from gpucluster.engine.events import Change


def preview(
    name: str,
    *,
    refresh: bool,
    program: Callable[[ClusterPlan], None],
    progress: Callable[[str], None],
    root: Path = paths.STATE_ROOT,
) -> "tuple[Change, ...]":
    """Return the changes that `pulumi up` would make. With `refresh` it reads the cloud, and so finds changes that were made outside Pulumi. Nothing is changed, also not the state."""
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    host_checks.require_root()
    home = state_dir.living(name, root)
    plan = home.read_plan()
    verb = run.preview_refreshed if refresh else run.preview
    return verb(home.target(engine.find_or_build(progress)), lambda: program(plan)).changes
