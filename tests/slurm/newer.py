"""A second tree in the namespaces of RealSlurm: the programs of a newer version with the same files, state, key and processes.

newer = Newer(slurm, "26.05")
newer.start_controller()
"""

from collections.abc import Sequence

from real_slurm import ROOT, RealSlurm, tree_or_skip

from gpucluster.plan import names

NEWER_ROOT = "/mnt/newer"  # in the namespaces: the overlay of the newer tree
SHARED = (
    *("/etc/slurm", "/etc/munge", "/etc/mysql", "/run", "/lab", "/srv", "/tmp", "/dev", "/home"),
    *("/var/spool", "/var/log/slurm", "/var/lib/mysql", names.ARCHIVE_DIR),
)
FILES = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts", "/etc/nsswitch.conf")


class Newer(RealSlurm):
    """The same cluster, whose programs are those of `version`."""

    def __init__(self, slurm: RealSlurm, version: str) -> None:
        self.__dict__.update(slurm.__dict__)
        self.version = version
        script = f"""set -e
            mkdir -p {NEWER_ROOT} /mnt/upper2 /mnt/work2
            options=lowerdir={tree_or_skip(version)},upperdir=/mnt/upper2,workdir=/mnt/work2
            mount -t overlay overlay -o $options {NEWER_ROOT}
            mount -t proc proc {NEWER_ROOT}/proc
            for path in {" ".join(SHARED)}; do
              mkdir -p {ROOT}$path {NEWER_ROOT}$path; mount --rbind {ROOT}$path {NEWER_ROOT}$path
            done
            for path in {" ".join(FILES)}; do cp {ROOT}$path {NEWER_ROOT}$path; done"""
        self._host("sh", "-c", script)

    def _argv(self, argv: Sequence[str], *, user: str = "root", node: str | None = None) -> list[str]:
        words = super()._argv(argv, user=user, node=node)
        words[words.index(ROOT)] = NEWER_ROOT
        return words
