"""`make demo`: brings stacks/burst.yaml up in the sandbox, runs one job of sixteen GPUs, and prints its timeline.

It runs the commands of the README and leaves nothing running, also after a failure. It writes the timeline as docs/demo/timeline.svg.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from picture import STAGES, spans, svg
from rich.console import Console
from rich.table import Table

STACK, NAME, USER = "stacks/burst.yaml", "burst", "researcher"
JOB = Path(__file__).with_name("talk.sbatch")
RUN_S, TALK_S, GONE_S = 120, 60, 120  # far above what each stage takes: a demo that hangs fails
PICTURE = Path(__file__).parents[2] / "docs" / "demo"
TITLE = "A two-node, sixteen-GPU job on an empty cluster, in the sandbox"
console = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """What did not happen, in one sentence."""


def main() -> int:
    try:
        show_and_run("sandbox", "up", STACK)
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
    record(events)
    console.print(
        f"The picture is {PICTURE / 'timeline.svg'}. Nothing is left running. Next: README.md, 'Commands without a network'."
    )
    return 0


def show() -> list[dict]:
    """Submit the job, wait until its nodes are terminated, and return the events of its timeline."""
    console.print(f"\n[bold]$ sbatch {JOB.name}[/]    (as {USER}, on a cluster that has no node)")
    job = head("sbatch", "--parsable", user=USER, stdin=JOB.read_text()).strip().split(";")[0]
    console.print(f"job {job}: " + head("squeue", "-h", "-j", job, "-o", "%T, wants %D nodes").strip())
    until("the job runs", lambda: squeue(job, "%T") == "RUNNING", RUN_S)
    batch_host = squeue(job, "%B")
    console.print(f"it runs on {squeue(job, '%N')}")
    until(
        "both nodes have received a message of the other",
        lambda: output(batch_host, job).count("received:") == 2,
        TALK_S,
    )
    console.print(output(batch_host, job).strip(), style="green")
    until("the nodes are gone", lambda: gone(job), GONE_S)
    return timeline(job)


def draw(events: list[dict]) -> None:
    """Print one row a stage: the times of the first and the last node since the submission, and a bar."""
    try:
        stages = spans(events)
    except KeyError as missing:
        raise DemoError(f"the timeline has no event {missing}") from missing
    width = 24 / max(last for _, last in stages.values())
    table = Table(title="From sbatch to terminated nodes", box=None, padding=(0, 1))
    for title, justify in (
        ("stage", "left"),
        ("first", "right"),
        ("last", "right"),
        ("", "left"),
        ("", "left"),
    ):
        table.add_column(title, justify=justify)
    for stage, (first, last) in stages.items():
        bar = " " * int(first * width) + "#" * max(1, round((last - first) * width))
        names = ", ".join(sorted({e["slot"] for e in events if e["what"] == stage and e["slot"]}))
        table.add_row(STAGES[stage], f"{first:.1f} s", f"{last:.1f} s", bar, names)
    console.print(table)


def record(events: list[dict]) -> None:
    """Write the stages as JSON and as a picture; a test holds the picture to the JSON."""
    stages = spans(events)
    PICTURE.mkdir(exist_ok=True)
    (PICTURE / "timeline.json").write_text(json.dumps({"title": TITLE, "stages": stages}, indent=1) + "\n")
    (PICTURE / "timeline.svg").write_text(svg(stages, TITLE))


def gone(job: str) -> bool:
    events = timeline(job)
    launched = {e["slot"] for e in events if e["what"] == "launched"}
    return bool(launched) and launched <= {e["slot"] for e in events if e["what"] == "gone"}


def timeline(job: str) -> list[dict]:
    return json.loads(
        head("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.inspect.timeline", job, "--json")
    )


def squeue(job: str, form: str) -> str:
    return head("squeue", "-h", "-j", job, "-o", form, check=False).strip()


def output(node: str, job: str) -> str:
    return run("sandbox", "exec", NAME, node, "--", "cat", f"/home/{USER}/talk-{job}.out", check=False)


def until(what: str, seen, within: float) -> None:
    """Wait for a condition; DemoError when it takes longer than `within` seconds."""
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


def show_and_run(*argv: str) -> None:
    console.print(f"[bold]$ gpucluster {' '.join(argv)}[/]")
    if subprocess.run([*cli(), *argv], check=False).returncode != 0:
        raise DemoError(f"gpucluster {' '.join(argv)} failed; its reason is above")


def cli() -> list[str]:
    return [os.fspath(Path(sys.executable).with_name("gpucluster"))]


if __name__ == "__main__":
    sys.exit(main())
