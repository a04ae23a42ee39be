"""Mounts and disks: in order, with patience, formatted only when empty, and nothing twice."""

from dataclasses import replace

import pytest
from fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.node import bundles, disks, exports, identity, mounts
from gpucluster.node.known import Known
from gpucluster.node.machine import NotYetError, StepError
from gpucluster.plan import codec, mounting, names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import (
    Bindings,
    Efs,
    FileSystemBinding,
    Lustre,
    Mount,
    Nfs,
    Nvme,
    OtherMount,
    Standby,
    Volume,
    there,
)

EFS, LUSTRE = "fs-1.efs.us-east-1.amazonaws.com", "fs-2.fsx.us-east-1.amazonaws.com"
STORAGE = (
    Mount(path="/home", efs=Efs()),
    Mount(path="/data", lustre=Lustre(zone="us-east-1a", size_gib=4800)),
    Mount(path="/apps", nfs=Nfs(server="10.42.0.10", export="/apps", from_head=True)),
    Mount(path="/soft", nfs=Nfs(server="10.42.0.10", export="/srv/soft", from_head=True)),
    Mount(path="/archive", other=OtherMount(type="beegfs", source="192.0.2.9:/a", options=("rw",))),
)
BOUND = {
    "/home": FileSystemBinding(id="fs-1", dns_name=EFS),
    "/data": FileSystemBinding(id="fs-2", dns_name=LUSTRE, mount_name="abcd"),
}
STATE = Volume(key="state", size_gib=100, path=names.STATE_MOUNT)
LINK = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0abc"


class Disks(FakeMachine):
    """mount and the programs of disks; `holds` is what blkid finds, `marks` what wipefs does."""

    holds: str = ""
    marks: str = ""
    fsck: int = 0

    def _outcome(self, argv, stdin, env):
        if argv[0] == "mount" and not any(" ".join(argv).startswith(w) for w in self.refuses):
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
    bindings = Bindings(
        schema=1, region="us-east-1", bucket="bkt", secret="arn", subnets={}, templates={},
        file_systems={p: replace(b, access_point="fsap-1" if points and p == "/home" else "") for p, b in bound.items()},
        volumes=volumes or {},
    )  # fmt: skip
    machine.store.objects[names.BUNDLE_KEY] = a_bundle(
        plan, more={names.BINDINGS_FILE: codec.dumps(bindings)}
    )
    known = bundles.fetch(machine.machine(), identity.find(machine.machine(), Known()))
    return machine, known


def with_storage(*storage, volumes=(), standby=None):
    plan = a_small_plan()
    return replace(plan, storage=storage, head=replace(there(plan.head), volumes=volumes, standby=standby))


def test_a_node_mounts_each_kind_outer_points_first_and_nothing_twice(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE))
    mounts.attached(machine.machine(), known)
    assert machine.commands("mount") == [
        ("mount", "-t", "nfs4", "-o", mounting.NFS, "10.42.0.10:/apps", "/apps"),
        ("mount", "-t", "beegfs", "-o", "rw", "192.0.2.9:/a", "/archive"),
        ("mount", "-t", "lustre", "-o", mounting.LUSTRE, f"{LUSTRE}@tcp:/abcd", "/data"),
        ("mount", "-t", "nfs4", "-o", mounting.EFS, f"{EFS}:/", "/home"),
        ("mount", "-t", "nfs4", "-o", mounting.NFS, "10.42.0.10:/srv/soft", "/soft"),
    ]
    mounts.attached(machine.machine(), known)
    assert len(machine.commands("mount")) == 5


def test_the_head_mounts_not_what_it_exports_but_binds_it_where_its_path_is_another(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE), role=names.ROLE_HEAD)
    mounts.attached(machine.machine(), known)
    assert [c[-2:] for c in machine.commands("mount") if c[-1] in ("/apps", "/soft")] == [
        ("/srv/soft", "/soft")
    ]


def test_with_awss_helper_efs_is_mounted_by_it_encrypted_and_by_its_access_point(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[0]), points=True)
    machine.put("/sbin/mount.efs", "")
    mounts.attached(machine.machine(), known)
    options = "tls,nosuid,nodev,_netdev,nofail,accesspoint=fsap-1"
    assert machine.commands("mount") == [("mount", "-t", "efs", "-o", options, "fs-1:/", "/home")]


def test_without_the_helper_the_access_points_folder_is_mounted_and_made_if_nobody_has(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[0]), points=True)
    whole = f"{EFS}:/home"
    machine.refuses[f"mount -t nfs4 -o {mounting.EFS} {whole}"] = "No such file or directory"
    with pytest.raises(NotYetError, match="/home cannot be mounted: No such file"):
        mounts.attached(machine.machine(), known)
    assert (tmp_path / f"{mounts.EFS_ROOT}/home".lstrip("/")).is_dir()
    assert machine.commands("umount") == [("umount", mounts.EFS_ROOT)]
    machine.refuses.clear()
    mounts.attached(machine.machine(), known)
    assert machine.commands("mount")[-1][-2:] == (whole, "/home")


def test_where_all_of_an_efs_is_refused_the_reason_names_the_mount_that_people_know(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[0]), points=True)
    machine.refuses["mount"] = "Connection timed out"
    with pytest.raises(NotYetError, match=r"^/home cannot be mounted: Connection timed out"):
        mounts.attached(machine.machine(), known)


def test_a_mount_that_fails_says_which_and_waits_less_long_than_the_boot_may_take(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[2]))
    machine.refuses["mount"] = "mount.nfs4: Connection refused"
    answer = NodeAnswer(node="h200-1a-1", life=1, controller="c:1", heartbeat_s=1)
    with pytest.raises(NotYetError, match="/apps cannot be mounted") as raised:
        mounts.attached(machine.machine(), replace(known, answer=answer))
    assert raised.value.limit_s == 60  # half of the pool's boot_timeout


def test_a_file_system_that_the_bindings_lack_is_told(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(STORAGE[1]), bound={})
    with pytest.raises(StepError, match="/data: the bindings do not know its file system"):
        mounts.attached(machine.machine(), known)


@pytest.mark.parametrize(
    ("count", "made"),
    [
        (0, []),
        (1, [("mkfs.xfs", "/dev/nvme1n1")]),
        (2, [("mdadm", disks.STRIPE), ("mdadm", "/dev/nvme2n1"), ("mkfs.xfs", disks.STRIPE)]),
    ],
)
def test_own_disks_are_striped_once_a_boot_and_are_a_folder_where_there_are_none(tmp_path, count, made):
    machine, known = a_machine(tmp_path, with_storage(Mount(path="/scratch", nvme=Nvme())))
    (tmp_path / "dev/disk/by-id").mkdir(parents=True)
    for number in range(1, count + 1):
        name = f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}"
        for alias in (name, f"{name}_1"):
            (tmp_path / "dev/disk/by-id" / alias).symlink_to(f"../../nvme{number}n1")
    for _ in range(2):
        disks.scratch(machine.machine(), known)
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


def test_an_empty_volume_is_formatted_and_one_with_data_only_checked_mounted_and_grown(tmp_path):
    machine, known = a_head(tmp_path)
    with pytest.raises(NotYetError, match=r"the volume vol-0abc \(state\) is not attached yet"):
        disks.volumes(machine.machine(), known)
    plug(machine)
    disks.volumes(machine.machine(), known)
    assert [c[0] for c in machine.calls] == ["blkid", "wipefs", "mkfs.ext4", "e2fsck", "mount", "resize2fs"]
    machine.calls.clear()
    disks.volumes(machine.machine(), known)
    assert machine.calls == []
    machine.put("/sys/class/block/nvme1n1/size", "419430400\n")  # ModifyVolume
    disks.volumes(machine.machine(), known)
    assert [c[0] for c in machine.calls] == ["resize2fs"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"holds": "xfs\n"}, "holds xfs, expected ext4 or nothing: it is left alone"),
        ({"marks": "0x1 gpt"}, "is not empty, and blkid does not know what it holds"),
        ({"holds": "ext4\n", "fsck": 4}, "is damaged, a person must look"),
    ],
)
def test_a_volume_that_holds_something_else_is_never_formatted(tmp_path, change, said):
    machine, known = a_head(tmp_path, **change)
    plug(machine)
    with pytest.raises(StepError, match=said):
        disks.volumes(machine.machine(), known)
    assert machine.commands("mkfs.ext4") == []
    assert machine.commands("mount") == []


def test_slurms_state_and_the_journal_are_bound_onto_the_volume_as_slurms_once(tmp_path):
    machine, known = a_head(tmp_path)
    with pytest.raises(NotYetError, match=f"{names.STATE_MOUNT} is not mounted"):
        disks.state(machine.machine(), known)
    plug(machine)
    disks.volumes(machine.machine(), known)
    for _ in range(2):
        disks.state(machine.machine(), known)
    assert machine.commands("mount")[1:] == [
        ("mount", "--bind", f"{names.STATE_MOUNT}/slurmctld", "/var/spool/slurmctld"),
        ("mount", "--bind", f"{names.STATE_MOUNT}/elastic", "/var/lib/gpucluster/elastic"),
    ]
    assert (tmp_path / "srv/gpucluster-state/slurmctld").stat().st_mode & 0o777 == 0o700


def test_with_a_standby_the_state_stands_on_the_mount_of_both():
    standby = Standby(machine="m7i.large", zone="us-east-1b", address="10.42.32.10", state="/home")
    assert disks.state_root(with_storage(STORAGE[0], standby=standby)) == "/home/.gpucluster"


def test_the_head_exports_to_the_ranges_of_its_machines_and_takes_back_what_left_the_plan(tmp_path):
    machine, known = a_machine(tmp_path, with_storage(*STORAGE), role=names.ROLE_HEAD)
    for _ in range(2):
        exports.served(machine.machine(), known)
    line = f"10.42.0.0/20({mounting.EXPORT})"
    assert machine.text(exports.FILE) == f"/apps {line}\n/srv/soft {line}\n"
    assert machine.commands("exportfs") == [("exportfs", "-r", "-a")]
    assert machine.active == {"nfs-server.service": 1}
    assert known.bundle is not None
    without = replace(known, bundle=replace(known.bundle, plan=with_storage()))
    exports.served(machine.machine(), without)
    assert machine.text(exports.FILE) == ""
    assert len(machine.commands("exportfs")) == 2
