"""The recorder takes away what jobs ask for on real daemons again, and writes the table from which `diff` speaks."""

import subprocess
import sys
from pathlib import Path

import pytest
from real_slurm import VERSIONS, tree_or_skip

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("version", VERSIONS)
def test_recording_again_gives_the_committed_table(version: str, tmp_path: Path) -> None:
    """A new release of Slurm in Debian changes `recorded`: then record again and read the difference."""
    tree_or_skip(version)
    out = tmp_path / f"slurm-requests-{version}.json"
    argv = [sys.executable, str(_ROOT / "tools/record_slurm.py"), version, "--requests", "--out", str(out)]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert out.read_text() == (_ROOT / "src/gpucluster/catalog/data" / out.name).read_text()
