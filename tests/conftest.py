"""Golden trees: real files under tests/golden, rewritten only with --update-golden; then read `git diff`."""

import difflib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("shared-machine", deadline=None)  # others may run beside us
hypothesis.settings.load_profile("shared-machine")

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, Mapping[str, bytes]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden trees instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, {path: content})` compares a whole tree: missing, stale and empty files fail."""

    def check(name: str, files: Mapping[str, bytes]) -> None:
        __tracebackhide__ = True
        empty = sorted(path for path, content in files.items() if not content.strip())
        if not files or empty:
            pytest.fail(f"nothing was made for {', '.join(empty) or name}")
        root = GOLDEN / name
        if request.config.getoption("--update-golden"):
            shutil.rmtree(root, ignore_errors=True)
            for path, content in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        if complaint := compare(root, files):
            pytest.fail(f"{complaint}\nIf it is meant: make golden, then read git diff")

    return check


def compare(root: Path, files: Mapping[str, bytes]) -> str:
    """What differs between the tree under `root` and `files`, as a diff; empty if nothing does."""
    kept = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    lines = [f"stale: {path}" for path in sorted(kept.keys() - files.keys())]
    for path, content in sorted(files.items()):
        if path not in kept:
            lines.append(f"missing: {path}")
        elif (old := kept[path].read_bytes()) != content:
            pair = (text.decode(errors="replace").splitlines() for text in (old, content))
            lines += difflib.unified_diff(*pair, f"golden/{path}", f"made/{path}", lineterm="")
    return "\n".join(lines)
