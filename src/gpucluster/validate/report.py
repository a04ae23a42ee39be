"""A run as one HTML file, without scripts and links, with all foreign text escaped."""

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpucluster.files import shipped
from gpucluster.validate.results import Run, needs_attention


def html(run: Run) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(shipped("templates") / "validate"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        name=run.name,
        headline=headline(run),
        counts=[(verdict, count) for verdict, count in run.counts().items() if count],
        seconds=f"{run.seconds:.1f}",
        attention=needs_attention(run.results),
        rows=run.results,
    )


def headline(run: Run) -> str:
    """One line for people."""
    counts = run.counts()
    if run.ok:
        warned = f", {counts['warn']} with a warning" if counts["warn"] else ""
        return f"healthy, {len(run.results)} checks{warned}"
    stopped = f"{run.stopped()} warning{'s' if run.stopped() > 1 else ''}"
    words = [f"{counts[kind]} {kind}" for kind in ("fail", "unknown") if counts[kind]]
    if run.stopped() and not words:
        return f"work is stopped: {stopped} of {len(run.results)} checks"
    after = f"; work is stopped: {stopped}" if run.stopped() else ""
    return f"not proven healthy: {', '.join(words) or 'no check was run'} of {len(run.results)} checks{after}"
