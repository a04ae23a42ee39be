"""`sandbox preview`: what an `up` of the stored plan would change, compared with Pulumi's state or with the cloud."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster import engine
from gpucluster.plan.model import ClusterPlan
from gpucluster.sandbox import host, ledger, places

if TYPE_CHECKING:
    from gpucluster.engine.events import Change


def preview(
    name: str,
    *,
    refresh: bool,
    program: Callable[[ClusterPlan], None],
    progress: Callable[[str], None],
    root: Path = places.STATE_ROOT,
) -> "tuple[Change, ...]":
    """Every resource that differs; none when nothing was done behind Pulumi's back. Nothing changes, the state neither."""
    from gpucluster.engine import run  # noqa: PLC0415  pulumi takes a second to import

    host.require_root()
    home = ledger.living(name, root)
    plan = home.read_plan()
    verb = run.preview_refreshed if refresh else run.preview
    return verb(home.target(engine.find_or_build(progress)), lambda: program(plan)).changes
