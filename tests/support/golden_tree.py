"""Golden trees: real files under tests/golden, rewritten only with --update-golden; then read `git diff`."""

import difflib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"

Golden = Callable[[str, Mapping[str, bytes]], None]


def compare(root: Path, files: Mapping[str, bytes]) -> str:
    """What is missing, stale, empty or different between the tree under `root` and `files`; "" if nothing is."""
    kept = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    lines = [] if files else ["nothing was made"]
    lines += [f"empty: {path}" for path, content in sorted(files.items()) if not content.strip()]
    lines += [f"stale: {path}" for path in sorted(kept.keys() - files.keys())]
    for path, content in sorted(files.items()):
        if path not in kept:
            lines.append(f"missing: {path}")
        elif (old := kept[path].read_bytes()) != content:
            before, after = (text.decode(errors="replace").splitlines() for text in (old, content))
            lines += difflib.unified_diff(before, after, f"golden/{path}", f"made/{path}", lineterm="")
    return "\n".join(lines)


def rewrite(root: Path, files: Mapping[str, bytes]) -> None:
    """Write exactly `files` below `root`."""
    shutil.rmtree(root, ignore_errors=True)
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
