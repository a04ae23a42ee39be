"""`make soak`, second half: every fault run on real clusters, several in parallel, and one report.

It needs root, as the sandbox does. A failed run is printed with the state of the cluster; then the exit code is 1.
"""

import argparse
import json
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import ROOT, Cluster, gpucluster
from fault_runs import RUNS, Run, Verdict, judge

COUNTS = ("leaked", "lost", "stuck", "untold", "twice")
CLUSTERS = 3  # about six machines each: the default inotify limit is enough for eighteen


def main(argv: Sequence[str] | None = None) -> int:
    """Run all, or the runs with one of the given words in the name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="select the runs with one of these words in the name")
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    options = parser.parse_args(argv)
    wanted = [r for r in RUNS if not options.words or any(w in r.name for w in options.words)]
    began = time.monotonic()
    verdicts = _all(wanted, options.clusters)
    write(report(verdicts, time.monotonic() - began))
    return 0 if len(verdicts) == len(wanted) and all(v.good for v in verdicts) else 1


def report(verdicts: Sequence[Verdict], seconds: float) -> str:
    """Return the report for people and for docs/performance.md."""
    kinds = Counter(v.kind for v in verdicts)
    lines = [
        f"runs {len(verdicts)}, {seconds / 60:.0f} min, nodes {sum(v.nodes for v in verdicts)}, "
        f"launches {sum(v.launches for v in verdicts)}",
        "by kind: " + ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())),
        *(f"{what} {sum(getattr(v, what) for v in verdicts)}" for what in COUNTS),
        *(f"BAD {v.run}: {'; '.join(v.words)[:2000]}" for v in verdicts if not v.good),
    ]
    return "\n".join(lines)


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _all(wanted: Sequence[Run], clusters: int) -> list[Verdict]:
    todo: queue.SimpleQueue[Run] = queue.SimpleQueue()
    for run in sorted(wanted, key=lambda r: -r.minutes):
        todo.put(run)
    verdicts: list[Verdict] = []
    threads = [
        threading.Thread(target=_work, args=(f"soak{n}", todo, verdicts)) for n in range(1, clusters + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def _work(name: str, todo: "queue.SimpleQueue[Run]", verdicts: list[Verdict]) -> None:
    """Bring up one cluster, take runs from the queue, take it down."""
    with TemporaryDirectory() as folder:
        _stand(name, Path(folder) / f"{name}.yaml", todo, verdicts)


def _stand(name: str, spec: Path, todo: "queue.SimpleQueue[Run]", verdicts: list[Verdict]) -> None:
    spec.write_text((ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {name}\n", 1))
    try:
        gpucluster("sandbox", "up", str(spec), timeout=1500)
        cluster = Cluster(name)
        while True:
            verdict = judge(cluster, todo.get_nowait())
            verdicts.append(verdict)
            line = {"run": verdict.run, "good": verdict.good, "s": verdict.seconds}
            write(json.dumps(line if verdict.good else {**line, "words": verdict.words}))
    except queue.Empty:
        pass
    finally:
        gpucluster("sandbox", "down", name, check=False)


if __name__ == "__main__":
    sys.exit(main())
