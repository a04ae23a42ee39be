"""Output does not depend on the terminal's encoding: what it lacks is written as an escape."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
HEADER = 'because: "our jobs are not tried with 26.05 yet"'
COMMANDS = (
    ("check", "{spec}"),
    ("check", "{wrong}"),
    ("plan", "{spec}"),
    ("diff", "stacks/burst.yaml", "{spec}", "--no-resources", "-o", "markdown"),
    ("lint", "{manifest}"),
    ("import", "{site}", "--to", "{imported}"),
    ("render", "{spec}", "--to", "{folder}"),
    ("why", "Łódź", "-c", "größe"),
)
TERMINALS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    # Python takes UTF-8 in this locale by itself; here it takes what the locale says, also for names of files
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


SITE = "ClusterName=größe\nSlurmctldHost=h\nNodeName=n1 CPUs=4 RealMemory=4000 Feature=Łódź\nPartitionName=p Nodes=n1 Default=YES\n"


@pytest.fixture
def names(tmp_path: Path) -> dict[str, str]:
    """A spec and a wrong one, with letters that Latin-1 lacks in their names and texts."""
    text = (TOP / "stacks/burst.yaml").read_text()
    assert HEADER in text
    spec, wrong = tmp_path / "größe→.yaml", tmp_path / "wrong→.yaml"
    spec.write_text(
        text.replace(HEADER, 'because: "Łódź → später"') + "tags: {team: Łódź}\n", encoding="utf-8"
    )
    wrong.write_text(text + "näme→: Łódź\n", encoding="utf-8")
    site, manifest = tmp_path / "slurm→.conf", tmp_path / "pods→.yaml"
    site.write_text(SITE, encoding="utf-8")
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: Łódź→}\nspec: {}\n", encoding="utf-8")
    written = {"imported": str(tmp_path / "größe→ß.yaml"), "folder": str(tmp_path / "größe→")}
    return {"spec": str(spec), "wrong": str(wrong), "site": str(site), "manifest": str(manifest), **written}


def typed(terminal: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, **terminal}
    argv = [sys.executable, "-P", "-m", "gpucluster.cli", *words]
    return subprocess.run(argv, cwd=TOP, env=env, capture_output=True, check=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_ends_alike_in_each_encoding(command: tuple[str, ...], names: dict[str, str]) -> None:
    words = [word.format_map(names) for word in command]
    right = typed({"PYTHONIOENCODING": "utf-8"}, *words)
    assert not (right.stdout + right.stderr).isascii(), "the command prints none of the letters"
    for terminal, variables in TERMINALS.items():
        for made in ("imported", "folder"):
            path = Path(names[made])
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        done = typed(variables, *words)
        ended = (done.returncode, len(done.stdout.splitlines()), b"Traceback" in done.stderr)
        assert ended == (right.returncode, len(right.stdout.splitlines()), False), terminal
