"""The recorder makes each drain, and takes away what jobs ask for, on real daemons again: the tables are those that the product reads."""

import subprocess
import sys
from pathlib import Path

import pytest
from real_slurm import VERSIONS, tree_or_skip

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table", ["drains", "requests"])
def test_recording_again_gives_the_committed_table(table: str, version: str, tmp_path: Path) -> None:
    """A new release of Slurm in Debian changes `recorded`: then record again and read the difference."""
    tree_or_skip(version)
    out = tmp_path / f"slurm-{table}-{version}.json"
    argv = [sys.executable, str(_ROOT / "tools/record_slurm.py"), version, f"--{table}", "--out", str(out)]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert out.read_text() == (_ROOT / "src/gpucluster/catalog/data" / out.name).read_text()
