"""The golden fixture's own rules: it must be able to fail."""

from pathlib import Path

from support.golden_tree import compare, rewrite


def test_missing_stale_and_changed_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x\n")
    (tmp_path / "same").write_text("s\n")
    (tmp_path / "changed").write_text("a\nb\n")
    told = compare(tmp_path, {"same": b"s\n", "changed": b"a\nc\n", "new": b"n\n"})
    assert told.splitlines()[0] == "stale: old"
    assert "missing: new" in told
    assert "-b\n+c" in told
    assert "same" not in told


def test_nothing_and_empty_files_are_reported(tmp_path: Path) -> None:
    assert compare(tmp_path, {}) == "nothing was made"
    (tmp_path / "f").write_text("\n")
    assert compare(tmp_path, {"f": b"\n"}) == "empty: f"


def test_a_rewritten_tree_says_nothing_and_keeps_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x\n")
    rewrite(tmp_path, {"d/f": b"x\n"})
    assert compare(tmp_path, {"d/f": b"x\n"}) == ""
