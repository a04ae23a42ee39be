"""`make demo`: the stack of stacks/burst.yaml in the sandbox, one job of sixteen GPUs, and its timeline.

It types what a newcomer would type, shows it, and leaves nothing running, however it ends.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

STACK, NAME, USER = "stacks/burst.yaml", "burst", "researcher"
JOB = Path(__file__).with_name("talk.sbatch")
RUN_S, HEAR_S, GONE_S = (
    120,
    60,
    120,
)  # far above what each takes; a demo that hangs is worse than one that fails
STAGES = ("submitted", "asked", "launched", "booted", "registered", "running", "idle", "gone")
console = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """What did not happen, in a sentence."""


def main() -> int:
    try:
        type_it("sandbox", "up", STACK)
        events = show()
    except DemoError as error:
        console.print(f"[red]demo: {error}[/]", markup=True)
        return 2
    except KeyboardInterrupt:
        console.print("demo: interrupted; taking the sandbox down")
        return 130
    finally:
        subprocess.run([*cli(), "sandbox", "down", NAME], check=False)
    draw(events)
    console.print("Nothing is left running. Next: README.md, 'At the desk'.")
    return 0


def show() -> list[dict]:
    """Submit, watch, fetch, wait for the end; the job's events."""
    console.print(f"\n[bold]$ sbatch {JOB.name}[/]    (as {USER}, on a cluster that has no node)")
    job = head("sbatch", "--parsable", user=USER, stdin=JOB.read_text()).strip().split(";")[0]
    console.print(f"job {job}: " + head("squeue", "-h", "-j", job, "-o", "%T, wants %D nodes").strip())
    until("the job runs", lambda: squeue(job, "%T") == "RUNNING", RUN_S)
    batch_host = squeue(job, "%B")
    console.print(f"it runs on {squeue(job, '%N')}")
    until("both nodes have heard each other", lambda: output(batch_host, job).count("heard:") == 2, HEAR_S)
    console.print(output(batch_host, job).strip(), style="green")
    until("the nodes are gone", lambda: gone(job), GONE_S)
    return timeline(job)


def draw(events: list[dict]) -> None:
    """One row a stage: when the first and the last node reached it, and a bar for the time since the submission."""
    start = min(e["at"] for e in events if e["what"] == "submitted")
    end = max(e["at"] for e in events)
    table = Table(title="From sbatch to nothing", box=None, padding=(0, 1))
    for title, justify in (
        ("stage", "left"),
        ("first", "right"),
        ("last", "right"),
        ("", "left"),
        ("", "left"),
    ):
        table.add_column(title, justify=justify)
    for stage in STAGES:
        seen = [e for e in events if e["what"] == stage]
        if not seen:
            raise DemoError(f"the timeline has no '{stage}'")
        first, last = (f(e["at"] for e in seen) - start for f in (min, max))
        width = 24 / max(end - start, 1e-9)
        bar = " " * int(first * width) + "#" * max(1, round((last - first) * width))
        names = ", ".join(sorted({e["slot"] for e in seen if e["slot"]}))
        table.add_row(stage, f"{first:.1f} s", f"{last:.1f} s", bar, names)
    console.print(table)


def gone(job: str) -> bool:
    events = timeline(job)
    launched = {e["slot"] for e in events if e["what"] == "launched"}
    return bool(launched) and launched <= {e["slot"] for e in events if e["what"] == "gone"}


def timeline(job: str) -> list[dict]:
    return json.loads(
        head("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.timeline", job, "--json")
    )


def squeue(job: str, form: str) -> str:
    return head("squeue", "-h", "-j", job, "-o", form, check=False).strip()


def output(node: str, job: str) -> str:
    return run("sandbox", "exec", NAME, node, "--", "cat", f"/tmp/talk-{job}.out", check=False)  # noqa: S108


def until(what: str, seen, within: float) -> None:
    """Wait for it, with a word each few seconds."""
    begin = time.monotonic()
    with console.status(f"waiting: {what}"):
        while not seen():
            if time.monotonic() - begin > within:
                raise DemoError(f"not within {within} s: {what}. Look: gpucluster sandbox logs {NAME} head")
            time.sleep(0.3)
    console.print(f"[dim]{time.monotonic() - begin:5.1f} s  {what}[/]")


def head(*argv: str, user: str | None = None, stdin: str | None = None, check: bool = True) -> str:
    who = () if user is None else ("--user", user)
    return run("sandbox", "exec", NAME, "head", *who, "--", *argv, stdin=stdin, check=check)


def run(*argv: str, stdin: str | None = None, check: bool = True) -> str:
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run([*cli(), *argv], capture_output=True, text=True, check=False, **source)
    if check and done.returncode != 0:
        raise DemoError(
            f"gpucluster {' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()[-600:]}"
        )
    return done.stdout


def type_it(*argv: str) -> None:
    console.print(f"[bold]$ gpucluster {' '.join(argv)}[/]")
    if subprocess.run([*cli(), *argv], check=False).returncode != 0:
        raise DemoError(f"gpucluster {' '.join(argv)} failed; its reason is above")


def cli() -> list[str]:
    return [os.fspath(Path(sys.executable).with_name("gpucluster"))]


if __name__ == "__main__":
    sys.exit(main())
