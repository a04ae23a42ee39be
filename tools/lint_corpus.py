"""Compare `gpucluster lint` with the expected verdicts of public example files by other hands.

    .venv/bin/python tools/lint_corpus.py CLONES            # compare; ends with 1 if a verdict differs
    .venv/bin/python tools/lint_corpus.py CLONES --update   # write the verdicts that lint gives now; then read the files

CLONES has OWNER/NAME for each repository: a clone, or a bare one, with the commit of the table. The table is
`tools/lint-corpus.json`, or the file of `--table`. It has the repository, the commit, and the path of each file. Each file is
checked alone, beside its neighbours, as a part of a cluster. `errors` lists the files with errors, their rules, and why these
errors are right: a reader's sentence, and `--update` leaves it empty for a new error. All other files have none; `read` lists
those of them that were drawn at random and read.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpucluster.cli.lint_input import read_all
from gpucluster.errors import GpuclusterError
from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.kustomize import FILES

TABLE = Path(__file__).with_name("lint-corpus.json")


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    table: dict[str, Any] = json.loads(arguments.table.read_text())
    facts = Facts(kubernetes=table["kubernetes"], whole=False)
    counts: Counter[str] = Counter()
    for row in table["repositories"]:
        found = _verdicts(arguments.clones / row["repository"], row, facts, counts)
        for words in _differences(row, found):
            counts["differ"] += 1
            print(words)
        if arguments.update:
            row["errors"] = {path: {"rules": found[path], "because": row["errors"].get(path, {}).get("because", "")} for path in sorted(found)}  # fmt: skip
    if arguments.update:
        arguments.table.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    print(f"{counts['files']} files of {len(table['repositories'])} repositories: {counts['refused']} with errors, {counts['warned']} with warnings, {counts['differ']} verdicts differ")  # fmt: skip
    return 1 if counts["differ"] and not arguments.update else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("clones", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", type=Path, default=TABLE)
    return parser.parse_args(argv)


def _differences(row: dict[str, Any], found: dict[str, list[str]]) -> Iterator[str]:
    """A verdict differs, or nobody has read the file."""
    for path in sorted({*found, *row["errors"]}):
        expected = row["errors"].get(path, {})
        if found.get(path, []) != expected.get("rules", []):
            yield f"{row['repository']} {path}: expected {expected.get('rules') or 'no error'}, found {found.get(path, 'no error')}"  # fmt: skip
        elif not expected.get("because"):
            yield f"{row['repository']} {path}: nobody has written why {expected['rules']} is right"


def _verdicts(clone: Path, row: dict[str, Any], facts: Facts, counts: Counter[str]) -> dict[str, list[str]]:
    """Return the rules of the errors of each file that has some."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        _check_out(clone, row["commit"], row["files"], Path(folder))
        for path in row["files"]:
            levels = _findings(Path(folder) / path, facts)
            counts["files"] += 1
            if rules := sorted({rule for level, rule in levels if level is Severity.ERROR}):
                found[path] = rules
            counts["refused"] += bool(rules)
            counts["warned"] += any(level is Severity.WARNING for level, _ in levels)
    return found


def _findings(file: Path, facts: Facts) -> list[tuple[Severity, str]]:
    try:
        got = read_all([file])
    except GpuclusterError as error:
        raise SystemExit(f"{file}: {error}") from error
    return [(one.level, one.rule) for one in (*got.findings, *check(got.documents, facts))]


def _check_out(clone: Path, commit: str, files: list[str], folder: Path) -> None:
    """Write the files, and all Kustomizations: they name patches."""
    git = shutil.which("git") or "git"
    listed = subprocess.run([git, "-C", str(clone), "ls-tree", "-r", "-z", "--name-only", commit], capture_output=True, text=True, check=True).stdout  # fmt: skip
    names = [name for name in listed.split("\0") if name.rpartition("/")[2] in FILES] + files
    archive = folder / ".archive.tar"
    subprocess.run(
        [git, "-C", str(clone), "archive", "--output", str(archive), commit, "--", *names], check=True
    )
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
