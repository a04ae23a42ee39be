"""The programs of a real node: kubelet, kube-proxy, kube-router, CoreDNS and agnhost from Go modules, the rest from Debian's packages."""

import os
import shutil
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import debian_packages

from gpucluster.engine.go import Go, Progress
from gpucluster.sandbox.kubernetes import programs


@dataclass(frozen=True, slots=True)
class Built:
    """The programs of a node: ours from Go modules, and an unpacked tree of Debian packages."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    @property
    def debian(self) -> Path:
        return self.folder / "debian"

    def environment(self) -> list[str]:
        """The words before a program that calls those of the packages."""
        libraries = self.debian / f"usr/lib/{os.uname().machine}-linux-gnu"
        path = [self.folder / "bin", self.debian / "usr/sbin", self.debian / "usr/bin", os.environ["PATH"]]
        return [
            "env",
            f"PATH={':'.join(map(str, path))}",
            f"LD_LIBRARY_PATH={libraries}",
            f"XTABLES_LIBDIR={libraries}/xtables",
        ]


def find_or_build(progress: Progress) -> Built:
    """Return the programs; build and download them if they are missing. `tools/node/go.mod` and `go.sum` pin the Go modules."""
    flags = ("-buildvcs=false", "-ldflags=-s -w")
    module = programs.module_of("node", "a node's programs", programs.source_of("node"), flags)
    packages = zlib.crc32(" ".join(_DEBIAN).encode())  # other packages make another build
    module = replace(module, name=f"{module.name}-{packages:08x}")

    def work(go: Go, folder: Path) -> None:
        progress(
            "building kubelet, kube-proxy, kube-router, CoreDNS and agnhost: about ten minutes of CPU the first time"
        )
        (folder / "bin").mkdir()
        go.build(folder / "bin", list(_PACKAGES))
        (folder / "packages").mkdir()
        for one in debian_packages.download(_DEBIAN, folder / "packages"):
            debian_packages.unpack(one, folder / "debian")
        shutil.rmtree(folder / "packages")
        for name in ("iptables", "iptables-save", "iptables-restore"):
            (folder / "bin" / name).symlink_to("../debian/usr/sbin/xtables-nft-multi")

    return Built(module.find_or_build(work, progress))


_PACKAGES = (
    "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
    "github.com/coredns/coredns",
    "k8s.io/kubernetes/cmd/kube-proxy",
    "k8s.io/kubernetes/cmd/kubelet",
    "k8s.io/kubernetes/test/images/agnhost",
)
_DEBIAN = (  # unpacked, not installed: containerd would start with the machine
    "containerd", "containernetworking-plugins", "ipset", "iptables", "libbsd0", "libedit2", "libgmp10", "libip4tc2",
    "libip6tc2", "libipset13", "libjansson4", "libmd0", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0", "libnftables1",
    "libnftnl11", "libseccomp2", "libxtables12", "nftables", "runc",
)  # fmt: skip
