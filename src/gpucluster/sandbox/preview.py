"""`sandbox preview`: what an `up` of the spec would change, compared with Pulumi's state or with the cloud."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster import engine
from gpucluster.engine.spec_source import source_of
from gpucluster.errors import StateError
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.spec_source import SpecSource
from gpucluster.sandbox import differences, host_checks, paths, state_dir

if TYPE_CHECKING:
    from gpucluster.engine.events import Change


def preview(
    name: str,
    *,
    refresh: bool,
    plan_of: Callable[[Path], ClusterPlan],
    program: Callable[[ClusterPlan, SpecSource], None],
    progress: Callable[[str], None],
    root: Path = paths.STATE_ROOT,
) -> "tuple[Change, ...]":
    """Return the changes that `pulumi up` would make. With `refresh` it reads the cloud, and so finds changes that were made outside Pulumi. Nothing is changed, also not the state.

    `plan_of` reads the spec of the sandbox's `up`, as it is now.
    """
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    host_checks.require_root()
    home = state_dir.living(name, root)
    if home.site.exists():
        raise StateError(
            f"{name} is a sandbox of hosts: Pulumi has no resources of it",
            next_step="`gpucluster diff OLD NEW` compares two specs",
        )
    plan = plan_of(home.spec)
    source = source_of(home.spec, plan)
    if plan.name != name:
        raise StateError(
            f"{home.spec} has the name '{plan.name}' now: it is another cluster",
            next_step=f"write `name: {name}`, or start the other one: gpucluster sandbox up {home.spec}",
        )
    plan = differences.in_sandbox(plan, home)
    verb = run.preview_refreshed if refresh else run.preview
    return verb(home.target(engine.find_or_build(progress)), lambda: program(plan, source)).changes
