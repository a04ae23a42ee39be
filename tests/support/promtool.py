"""Prometheus' own tool, which `tools/warm.py` and `make test` fetch."""

import runpy
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def found() -> Path:
    program = runpy.run_path(str(ROOT / "tools" / "promtool.py"))["find"]()
    assert program is not None, "promtool is not found; next: python tools/promtool.py"
    return program


def run_promtool(program: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
