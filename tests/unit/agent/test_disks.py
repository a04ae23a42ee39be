"""Mounts and disks: order, waiting, format only if empty, nothing twice."""

from dataclasses import replace

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.agent.boot import bundles, identity
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.disks import block_devices, mounts
from gpucluster.agent.machine import NotYetError, StepError
from gpucluster.plan import codec, names, state_storage
from gpucluster.plan import mounts as mounting
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import (
    Bindings,
    Efs,
    FileSystemBinding,
    FsxLustre,
    Mount,
    NfsFromHead,
    Nvme,
    OtherMount,
    SiteEfs,
    Standby,
    Volume,
)

EFS, LUSTRE = "fs-1.efs.us-east-1.amazonaws.com", "fs-2.fsx.us-east-1.amazonaws.com"
STORAGE = (
    Mount(path="/home", source=Efs()),
    Mount(path="/data", source=FsxLustre(zone="us-east-1a", size_gib=4800)),
    Mount(path="/apps", source=NfsFromHead(server="10.42.0.10", export="/apps")),
    Mount(path="/soft", source=NfsFromHead(server="10.42.0.10", export="/srv/soft")),
    Mount(path="/archive", source=OtherMount(type="beegfs", source="192.0.2.9:/a", options=("rw",))),
)
BOUND = {
    "/home": FileSystemBinding(id="fs-1", dns_name=EFS),
    "/data": FileSystemBinding(id="fs-2", dns_name=LUSTRE, mount_name="abcd"),
}
SCOPE = ("systemd-run", "--scope", "--quiet", "--collect")
STATE = Volume(key="state", size_gib=100, path=names.STATE_MOUNT)
LINK = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0abc"


class Disks(FakeMachine):
    """Stand-ins of mount and of disk programs. `holds` is the result of blkid, `marks` the result of wipefs."""

    holds: str = ""
    marks: str = ""
    fsck: int = 0

    def _outcome(self, argv, stdin, env):
        if "mount" in argv and not any(" ".join(argv).startswith(w) for w in self.refuses):
            with (self.root / "proc/self/mountinfo").open("a") as table:
                table.write(f"1 1 0:1 / {argv[-1]} rw - x {argv[-2]} rw\n")
        if argv[0] == "blkid":
            return (0, self.holds) if self.holds else (2, "")
        if argv[0] == "wipefs":
            return 0, self.marks
        if argv[0] == "e2fsck":
            return self.fsck, ""
        return super()._outcome(argv, stdin, env)


def a_machine(tmp_path, plan, *, role=names.ROLE_NODE, bound=BOUND, volumes=None, points=False):
    machine = Disks(tmp_path, role=role)
    machine.put(mounts.TABLE, "")
    machine.put(mounts.EFS_HELPER, "")
    bindings = Bindings(
        schema=1, region="us-east-1", bucket="bkt", secret="arn", subnets={}, templates={},
        file_systems={p: replace(b, access_point="fsap-1" if points and p == "/home" else "") for p, b in bound.items()},
        volumes=volumes or {},
    )  # fmt: skip
    machine.services.objects[names.BUNDLE_KEY] = a_bundle(
        plan, more={names.BINDINGS_FILE: codec.dumps(bindings)}
    )
    known = bundles.fetch(machine.machine(), identity.from_user_data(machine.machine(), BootState()))
    return machine, known


def with_storage(*storage, volumes=(), standby=None):
    plan = a_small_plan()
    return replace(plan, storage=storage, head=replace(plan.head, volumes=volumes, standby=standby))


def test_node_mounts_each_kind_once_with_outer_paths_first(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE))
    block_devices.mount_all(machine.machine(), known)
    assert machine.commands("mount") == [
        ("mount", "-t", "nfs4", "-o", mounting.NFS, "10.42.0.10:/apps", "/apps"),
        ("mount", "-t", "beegfs", "-o", "rw,nosuid,nodev", "192.0.2.9:/a", "/archive"),
        ("mount", "-t", "lustre", "-o", mounting.LUSTRE, f"{LUSTRE}@tcp:/abcd", "/data"),
        ("mount", "-t", "nfs4", "-o", mounting.NFS, "10.42.0.10:/srv/soft", "/soft"),
    ]
    assert machine.commands("systemd-run") == [
        (*SCOPE, "mount", "-t", "efs", "-o", mounting.EFS_HELPER, "fs-1:/", "/home")
    ]
    block_devices.mount_all(machine.machine(), known)
    assert len(machine.commands("mount")) == 4
    assert len(machine.commands("systemd-run")) == 1


def test_head_bind_mounts_its_own_exports(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE), role=names.ROLE_HEAD)
    block_devices.mount_all(machine.machine(), known)
    assert [c[-2:] for c in machine.commands("mount") if c[-1] in ("/apps", "/soft")] == [
        ("/srv/soft", "/soft")
    ]


def test_our_efs_is_mounted_with_tls_and_the_role_of_the_machine(tmp_path):
    """Without `iam` EFS trusts the uid that any client sends. The scope outlives the agent, and so does the TLS proxy."""
    machine, known = a_machine(tmp_path, with_storage(STORAGE[0]), points=True)
    block_devices.mount_all(machine.machine(), known)
    options = "iam,tls,noresvport,resvport,nosuid,nodev,_netdev,nofail,accesspoint=fsap-1"
    command = (*SCOPE, "mount", "-t", "efs", "-o", options, "fs-1:/", "/home")
    assert machine.commands("systemd-run") == [command]


def test_our_efs_is_not_mounted_without_the_helper(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[0]), points=True)
    (machine.root / mounts.EFS_HELPER.lstrip("/")).unlink()
    with pytest.raises(StepError, match=r"^/home: this image has no /sbin/mount.efs"):
        block_devices.mount_all(machine.machine(), known)
    assert not machine.calls


@pytest.mark.parametrize(
    ("helper", "command"),
    [
        (True, (*SCOPE, "mount", "-t", "efs", "-o", mounting.SITE_EFS_HELPER, "fs-1:/", "/home")),
        (False, ("mount", "-t", "nfs4", "-o", mounting.EFS, f"{EFS}:/", "/home")),
    ],
)
def test_efs_of_the_site_is_mounted_also_without_the_helper(tmp_path, helper, command):
    machine, known = a_machine(tmp_path, with_storage(Mount(path="/home", source=SiteEfs(id="fs-1"))))
    if not helper:
        (machine.root / mounts.EFS_HELPER.lstrip("/")).unlink()
    block_devices.mount_all(machine.machine(), known)
    assert machine.calls == [command]


@pytest.mark.parametrize(
    ("role", "mounted"),
    [(names.ROLE_HEAD, ["/state"]), (names.ROLE_STANDBY, ["/state"]), (names.ROLE_NODE, [])],
)
def test_only_heads_mount_the_state_of_slurmctld(tmp_path, role, mounted):
    standby = Standby(machine="m7i.2xlarge", zone="us-east-1b", address="10.42.0.11", state="/state")
    plan = with_storage(Mount(path="/state", source=Efs()), standby=standby)
    bound = {"/state": BOUND["/home"]}
    machine, known = a_machine(tmp_path, plan, role=role, bound=bound)
    block_devices.mount_all(machine.machine(), known)
    assert [command[-1] for command in machine.commands("systemd-run")] == mounted


def test_failed_mount_is_named_and_fails_before_the_boot_timeout(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[2]))
    machine.refuses["mount"] = "mount.nfs4: Connection refused"
    answer = NodeAnswer(node="h200-1a-1", incarnation=1, controller="c:1", heartbeat_s=1)
    with pytest.raises(NotYetError, match="/apps cannot be mounted") as raised:
        block_devices.mount_all(machine.machine(), replace(known, answer=answer))
    assert raised.value.limit_s == 60  # half of the pool's boot_timeout


def test_file_system_without_binding_is_reported(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[1]), bound={})
    with pytest.raises(StepError, match="/data: the bindings have no file system for it"):
        block_devices.mount_all(machine.machine(), known)


@pytest.mark.parametrize(
    ("count", "made"),
    [
        (0, []),
        (1, [("mkfs.xfs", "/dev/nvme1n1")]),
        (2, [("mdadm", block_devices.STRIPE), ("mdadm", "/dev/nvme2n1"), ("mkfs.xfs", block_devices.STRIPE)]),
    ],
)
def test_own_disks_are_striped_once_a_boot_and_are_a_folder_where_there_are_none(tmp_path, count, made):
    machine, known = a_machine(tmp_path, with_storage(Mount(path="/scratch", source=Nvme())))
    (tmp_path / "dev/disk/by-id").mkdir(parents=True)
    for number in range(1, count + 1):
        name = f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}"
        for alias in (name, f"{name}_1"):
            (tmp_path / "dev/disk/by-id" / alias).symlink_to(f"../../nvme{number}n1")
        (tmp_path / "dev/disk/by-id" / f"{name}-part1").symlink_to(f"../../nvme{number}n1p1")  # no disk
    for _ in range(2):
        block_devices.mount_instance_store(machine.machine(), known)
    assert [(c[0], c[-1]) for c in machine.calls if c[0] in ("mdadm", "mkfs.xfs")] == made
    assert (tmp_path / "scratch").stat().st_mode & 0o7777 == 0o1777


def a_head(tmp_path, **change):
    machine, known = a_machine(
        tmp_path, with_storage(volumes=(STATE,)), role=names.ROLE_HEAD, volumes={"state": "vol-0abc"}
    )
    for name, value in change.items():
        setattr(machine, name, value)
    return machine, known


def plug(machine):
    machine.put("/dev/nvme1n1", "")
    machine.put("/sys/class/block/nvme1n1/size", "209715200\n")
    link = machine.root / LINK.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to("../../nvme1n1")


def test_empty_volume_is_formatted_and_volume_with_data_is_kept(tmp_path):
    machine, known = a_head(tmp_path)
    with pytest.raises(NotYetError, match=r"the volume vol-0abc \(state\) is not attached yet"):
        block_devices.mount_volumes(machine.machine(), known)
    plug(machine)
    block_devices.mount_volumes(machine.machine(), known)
    assert [c[0] for c in machine.calls] == ["blkid", "wipefs", "mkfs.ext4", "e2fsck", "mount", "resize2fs"]
    machine.calls.clear()
    block_devices.mount_volumes(machine.machine(), known)
    assert machine.calls == []
    machine.put("/sys/class/block/nvme1n1/size", "419430400\n")  # ModifyVolume
    block_devices.mount_volumes(machine.machine(), known)
    assert [c[0] for c in machine.calls] == ["resize2fs"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"holds": "xfs\n"}, "contains xfs, expected ext4 or nothing; it is not changed"),
        ({"marks": "0x1 gpt"}, "is not empty, and blkid does not recognize its content"),
        ({"holds": "ext4\n", "fsck": 4}, "is damaged; run e2fsck by hand"),
    ],
)
def test_volume_with_other_content_is_never_formatted(tmp_path, change, said):
    machine, known = a_head(tmp_path, **change)
    plug(machine)
    with pytest.raises(StepError, match=said):
        block_devices.mount_volumes(machine.machine(), known)
    assert machine.commands("mkfs.ext4") == []
    assert machine.commands("mount") == []


def test_slurms_state_and_the_journal_are_bound_onto_the_volume_as_slurms_once(tmp_path):
    machine, known = a_head(tmp_path)
    with pytest.raises(NotYetError, match=f"{names.STATE_MOUNT} is not mounted"):
        block_devices.bind_state(machine.machine(), known)
    plug(machine)
    block_devices.mount_volumes(machine.machine(), known)
    for _ in range(2):
        block_devices.bind_state(machine.machine(), known)
    assert machine.commands("mount")[1:] == [
        ("mount", "--bind", f"{names.STATE_MOUNT}/slurmctld", "/var/spool/slurmctld"),
        ("mount", "--bind", f"{names.STATE_MOUNT}/elastic", "/var/lib/gpucluster/elastic"),
    ]
    assert (tmp_path / "srv/gpucluster-state/slurmctld").stat().st_mode & 0o777 == 0o700


def test_with_a_standby_the_state_is_on_the_shared_mount():
    standby = Standby(machine="m7i.large", zone="us-east-1b", address="10.42.32.10", state="/home")
    assert state_storage.state_root(with_storage(STORAGE[0], standby=standby)) == "/home/.gpucluster"


def test_head_exports_to_its_subnets_and_removes_old_exports(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE), role=names.ROLE_HEAD)
    for _ in range(2):
        mounts.export(machine.machine(), known)
    line = f"10.42.0.0/20({mounting.EXPORT})"
    assert machine.text(mounts.EXPORTS) == f"/apps {line}\n/srv/soft {line}\n"
    assert machine.commands("exportfs") == [("exportfs", "-r", "-a")]
    assert machine.active == {"nfs-server.service": 1}
    assert known.bundle is not None
    without = replace(known, bundle=replace(known.bundle, plan=with_storage()))
    mounts.export(machine.machine(), without)
    assert machine.text(mounts.EXPORTS) == ""
    assert len(machine.commands("exportfs")) == 2
