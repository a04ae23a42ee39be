"""A hook from exec to exit, with one node, and with a list of 4,000 nodes and their jobs; the base is an empty Python."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms

LIMIT = 4.0  # times a bare Python, measured in the same run
TIMES = 41
HOOK = Path(__file__).parent.parent / "src" / "gpucluster" / "elastic" / "hook.py"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def run() -> Iterator[Figure]:
    """Both figures as multiples of a bare Python."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        hook = _installed(root)
        many = ",".join(f"h200-1a-{n}" for n in range(4000))
        bare = median_ms(lambda: _call([PYTHON, "-IS", "-c", "pass"], {}), TIMES)
        one = median_ms(lambda: _call([PYTHON, "-IS", str(hook), "h200-1a-1"], {}), TIMES)
        environ = {"SLURM_RESUME_FILE": str(_resume_file(root, many))}
        all_nodes = median_ms(lambda: _call([PYTHON, "-IS", str(hook), many], environ), TIMES)
    yield figure("hook.one_node.over_bare_python", one / bare, "x", LIMIT)
    yield figure("hook.4000_nodes.over_bare_python", all_nodes / bare, "x", LIMIT)


def _installed(root: Path) -> Path:
    """Write the hook as it is on the head, with its spool in `root`."""
    hook = root / "resume"
    hook.write_text(HOOK.read_text().replace("/var/spool/gpucluster", str(root / "spool")))
    return hook


def _resume_file(root: Path, hostlist: str) -> Path:
    path = root / "resume.json"
    job = {"job_id": 1, "nodes_alloc": hostlist, "nodes_resume": hostlist, "partition": "gpu"}
    path.write_text(json.dumps({"all_nodes_resume": hostlist, "jobs": [job]}))
    return path


def _call(argv: list[str], environ: dict[str, str]) -> None:
    """Call it as slurmctld does: without PATH and HOME."""
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, check=False, cwd=os.sep)
    assert done.returncode == 0
