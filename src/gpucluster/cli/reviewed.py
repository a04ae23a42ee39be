"""The spec that was given to `gpucluster validate`, beside that of the published bundle."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.output import progress
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names
from gpucluster.text import short

if TYPE_CHECKING:
    from gpucluster.checks.acceptances import Acceptances
    from gpucluster.checks.reviewed_spec import Order, Reviewed
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.plan.spec_source import SpecSource
    from gpucluster.sandbox.state_dir import SandboxDir


def recorded(files: Mapping[str, bytes]) -> "SpecSource | None":
    """Return what a bundle says of its spec; None if it does not say it: another version of gpucluster made it."""
    from gpucluster.plan.spec_source import read

    content = files.get(names.SOURCE_FILE)
    try:
        return None if content is None else read(content)
    except ValueError:
        return None


def compared(
    file: Path, plan: "ClusterPlan", published: "SpecSource | None", *, place: str, bucket: str = ""
) -> "Reviewed":
    """Return what the check of the spec wants. `plan`: of the file, without the differences of a sandbox."""
    from gpucluster.checks.reviewed_spec import Reviewed
    from gpucluster.engine.spec_source import source_of

    given = source_of(file, plan)
    return Reviewed(
        file=str(file),
        given=given,
        published=published,
        place=place,
        order=_order(file, given, published),
        publish=_publish(file, plan, bucket),
        commit=f"git add {shlex.quote(str(file))}, git commit and a review of it",
        newer=f"git merge --ff-only {published.commit if published else ''}; gpucluster validate {shlex.quote(str(file))}",
    )


def acceptances(file: Path) -> "Acceptances | None":
    """Return what a spec accepts until a day, as it is today (UTC); None if it accepts nothing so, or cannot be read."""
    from datetime import UTC, datetime

    from gpucluster.checks.acceptances import Acceptances
    from gpucluster.spec import inspect

    today = datetime.now(UTC).date()
    try:
        found = inspect(file, today)
    except GpuclusterError:
        return None
    ends = [] if found.spec is None else [one.until for one in found.spec.accept if one.until]
    if not ends:
        return None
    ended = tuple(f"{one.id} {one.path}: {one.message}" for one in found.problems if one.ended)
    return Acceptances(file=str(file), count=len(ends), first=min(ends).isoformat(), ended=ended)


def of_sandbox(home: "SandboxDir", published: "SpecSource | None", bucket: str) -> "Reviewed | None":
    """Compare with the spec of the sandbox's `up`, as it is now; None, with the reason told, if it is gone or not valid."""
    from gpucluster.cli.context import resolve_file

    try:
        file = home.spec
        plan = resolve_file(file).plan
    except (OSError, GpuclusterError) as error:
        made = "" if published is None else f", of {published.name}"
        progress(f"{home.name} is compared with the bundle that is published{made}: {short(str(error))}")
        return None
    return compared(file, plan, published, place=f"the bundle of {home.name}", bucket=bucket)


def _order(file: Path, given: "SpecSource", published: "SpecSource | None") -> "Order":
    from gpucluster.checks.reviewed_spec import Order
    from gpucluster.engine.git_objects import is_ancestor

    if published is None or not published.commit or published.commit == given.commit:
        return Order.UNKNOWN
    if is_ancestor(published.commit, given.commit, file.parent):
        return Order.OLDER
    newer = is_ancestor(given.commit, published.commit, file.parent)
    return Order.NEWER if newer and not (given.dirty or published.dirty) else Order.UNKNOWN


def _publish(file: Path, plan: "ClusterPlan", bucket: str) -> str:
    """Pulumi reads no object back, so it publishes a bundle again only where it is gone."""
    if plan.hosts is not None:
        return (
            f"gpucluster inventory {shlex.quote(str(file))} --to site, "
            "then ansible-playbook -i site/inventory.yml playbooks/site.yml"
        )
    again = f"aws s3 rm s3://{bucket}/{names.BUNDLE_KEY}, then pulumi up --refresh --stack {plan.name}"
    return (
        f"pulumi up --stack {plan.name}; if it changes no bundle, an older one was put back by hand: {again}"
    )
