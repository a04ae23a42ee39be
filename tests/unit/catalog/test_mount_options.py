"""Mount options: each helper gets only options that it takes. The real mount(8) shows what reaches a helper."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.catalog import mount_options
from gpucluster.plan import mounts

UNSHARE = shutil.which("unshare")
DATA = Path(mount_options.__file__).parent / "data" / "mount-options.json"
PASSED = "rw,noatime,nosuid,nodev,flock,_netdev,nofail"
FSTAB = "noatime,nosuid,nodev,flock,_netdev,nofail,x-systemd.wanted-by=remote-fs.target,x-gvfs-show,auto"


@pytest.mark.parametrize(
    ("file_system", "options"),
    [
        ("lustre", mounts.LUSTRE),
        ("nfs4", mounts.NFS),
        ("nfs4", mounts.EFS),
        ("efs", mounts.EFS_HELPER),
    ],
)
def test_our_options_are_those_of_the_helper(file_system: str, options: str) -> None:
    """`nofail` reached mount.lustre, which passed it to the kernel, and no Lustre was ever mounted."""
    assert mount_options.refused(file_system, options.split(",")) == ()


@pytest.mark.parametrize(
    ("file_system", "options", "refused"),
    [
        ("lustre", "noatime,flock,_netdev,nofail", ("nofail",)),
        ("lustre", "flock=1,retry=3,retry", ("flock=1", "retry")),
        ("lustre", "x-systemd.wanted-by=remote-fs.target,noauto,flock", ()),
        ("nfs4", "hard,nofail,_netdev,nfsvers=4.1", ()),
        ("nfs4", "hard,flock,tls", ("flock", "tls")),
        ("efs", "tls,iam,accesspoint=fsap-1,_netdev,nofail", ()),
        ("efs", "tls,capath=/etc", ("capath=/etc",)),
        ("beegfs", "anything", ()),
    ],
)
def test_other_options_are_refused(file_system: str, options: str, refused: tuple[str, ...]) -> None:
    assert mount_options.refused(file_system, options.split(",")) == refused


def test_every_helper_names_its_sources() -> None:
    table = json.loads(DATA.read_text())
    for row in (table["stripped"], *table["helpers"].values()):
        assert row["sources"]
        for source in row["sources"]:
            assert all(source[key] for key in ("repository", "path", "commit", "date", "what"))


@pytest.mark.skipif(os.geteuid() != 0 or UNSHARE is None, reason="mounts need root")
@pytest.mark.parametrize("table", [False, True], ids=["command line", "fstab"])
def test_real_mount_passes_nofail_to_a_helper_and_strips_x_options(tmp_path: Path, *, table: bool) -> None:
    """A tmpfs over /sbin of a private mount namespace holds the helper, so the machine keeps its own."""
    target, seen = tmp_path / "target", tmp_path / "seen"
    target.mkdir()
    program = tmp_path / "mount.testfs"
    program.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    program.chmod(0o755)
    fstab = tmp_path / "fstab"
    fstab.write_text(f"server:/a {target} testfs {FSTAB} 0 0\n")
    how = f"-T {fstab} {target}" if table else f"-t testfs -o {FSTAB} server:/a {target}"
    script = f"mount=$(readlink -f $(command -v mount)); cp $mount {tmp_path}/mount8; mount -t tmpfs x /sbin; cp {program} /sbin/; {tmp_path}/mount8 {how}"
    assert UNSHARE is not None
    subprocess.run([UNSHARE, "--mount", "sh", "-ec", script], check=True, timeout=BOUND_S)
    options = seen.read_text().split(" -o ")[1].strip()
    assert options == PASSED
    assert set(mount_options.passed_on(FSTAB.split(","))) == set(PASSED.split(",")) - {"rw"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (mounts.NFS, mounts.NFS),
        (mounts.LUSTRE, f"{mounts.LUSTRE},{mounts.WANTED}"),
        ("defaults", f"defaults,{mounts.WANTED}"),
        ("rw,x-systemd.automount", "rw,x-systemd.automount"),
        ("rw,noauto", "rw,noauto"),
    ],
)
def test_boot_of_a_host_does_not_require_a_file_server(tmp_path: Path, options: str, expected: str) -> None:
    line = mounts.FstabLine(path="/data", source="server:/a", type="lustre", options=options)
    assert line.fstab_options() == expected
    generator = Path("/usr/lib/systemd/system-generators/systemd-fstab-generator")
    if not generator.exists():
        pytest.skip("this machine has no systemd-fstab-generator")
    fstab = tmp_path / "fstab"
    fstab.write_text(f"server:/a /data lustre {expected},_netdev 0 0\n")
    environment = {**os.environ, "SYSTEMD_FSTAB": str(fstab)}
    subprocess.run([generator, tmp_path, tmp_path, tmp_path], env=environment, check=True, timeout=BOUND_S)
    assert not list(tmp_path.glob("*.requires/data.mount"))
