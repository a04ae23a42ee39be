"""A host that exists: from what Ansible brought to Slurm running, and again without a change."""

import base64
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_lab_plan
from fake_machine import CONF, FakeMachine, Killed

from gpucluster import artifacts
from gpucluster.artifacts import Artifact
from gpucluster.node import agent, effects, host_role, keyfile, mounts, naming, settled
from gpucluster.node.aws import RoleStore
from gpucluster.node.folder import FolderStore
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import codec, names
from gpucluster.plan.model import ClusterPlan
from gpucluster.shell import Result

PLAN = a_lab_plan()
HOSTS = "# lab\n192.0.2.10 ctl0\n192.0.2.11 gpu01\n"
MOUNTED = "36 35 0:1 / / rw - ext4 /dev/x rw\n40 36 0:2 / /home rw - nfs4 192.0.2.10:/srv/home rw\n"
KEY = bytes(range(128))


def a_bundle(plan: ClusterPlan = PLAN, conf: str = CONF) -> bytes:
    texts = {
        names.PLAN_FILE: codec.dumps(plan),
        f"{names.SLURM_DIR}/slurm.conf": conf,
        names.HOSTS_FILE: HOSTS,
    }
    return artifacts.pack(Artifact(path, text.encode()) for path, text in texts.items())


class Host(FakeMachine):
    """A machine on which Ansible has been: file, bundle, key, fstab."""

    def furnish(self, node: str, role: str, bundle: bytes | None = None) -> "Host":
        folder = self.root / names.SITE_DIR.lstrip("/")
        told = {"cluster": "lab", "role": role, "node": node, "address": "192.0.2.11", "folder": str(folder)}
        self.put(names.USER_DATA_FILE, json.dumps(told))
        self.put("/proc/sys/kernel/hostname", f"{node}\n")
        self.put("/etc/hosts", f"127.0.0.1\tlocalhost\n127.0.1.1\t{node}.example.org {node}\n")
        self.put(mounts.TABLE, MOUNTED)
        for number in range(8):
            self.put(f"/dev/nvidia{number}", "")
        folder.mkdir(parents=True, exist_ok=True)
        self.bring(a_bundle() if bundle is None else bundle)
        key = self.root / names.MUNGE_KEY.lstrip("/")
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_bytes(KEY)
        key.chmod(0o400)
        return self

    def bring(self, bundle: bytes) -> None:
        (self.root / names.SITE_DIR.lstrip("/") / names.BUNDLE_KEY).write_bytes(bundle)

    def machine(self) -> Machine:
        return replace(super().machine(), store=self._folder)

    def _folder(self, region: str) -> FolderStore:
        assert region == ""
        self._effect()
        return FolderStore()

    def live(self) -> dict[str, object]:
        host_role.live(self.machine())
        return self.status()

    def status(self) -> dict[str, object]:
        return json.loads(self.text(f"{names.SITE_DIR}/{names.SITE_STATUS}"))


def a_node(root: Path, **change: object) -> Host:
    return Host(root, **change).furnish("gpu01", names.ROLE_NODE)  # type: ignore[arg-type]


def a_head(root: Path, **change: object) -> Host:
    return Host(root, **change).furnish("ctl0", names.ROLE_HEAD)  # type: ignore[arg-type]


def started(host: FakeMachine) -> list[str]:
    return [argv[2] for argv in host.calls if argv[:2] in (("systemctl", "start"), ("systemctl", "restart"))]


def test_a_node_comes_up_in_order_without_a_cloud_and_ends(tmp_path):
    node = a_node(tmp_path)
    status = node.live()
    assert (status["ready"], status["applied"]) == (True, artifacts.digest(a_bundle()))
    assert [s["name"] for s in status["steps"]] == [name for name, _ in host_role.NODE]  # type: ignore[index,attr-defined]
    assert started(node) == ["munge.service", "slurmd.service"]
    assert node.text("/run/gpucluster-agent/slurmd.env") == (
        'SLURMD_OPTIONS="-N gpu01 --conf-server 192.0.2.10:6817"\n'  # never -b: a host has one life
    )
    assert "--origin=192.0.2.11" in node.text("/run/gpucluster-agent/munge.env")
    assert not node.commands("nft")


def test_a_head_comes_up_in_order(tmp_path):
    head = a_head(tmp_path)
    status = head.live()
    assert (status["ready"], [s["name"] for s in status["steps"]]) == (True, [n for n, _ in host_role.HEAD])  # type: ignore[index,attr-defined]
    assert started(head) == ["munge.service", "slurmctld.service"]


@pytest.mark.parametrize("a_host", [a_node, a_head])
def test_a_second_run_starts_and_writes_nothing(tmp_path, a_host):
    host = a_host(tmp_path)
    host.live()
    before, units = host.snapshot(), dict(host.active)
    assert host.live()["ready"]
    assert (host.snapshot(), host.active) == (before, units)


@pytest.mark.parametrize("a_host", [a_node, a_head])
def test_killed_after_any_effect_it_reaches_the_same_end(tmp_path, a_host):
    whole = a_host(tmp_path / "whole")
    whole.live()
    skip = names.USER_DATA_FILE.lstrip("/")  # it names the folder
    wanted = {path: body for path, body in whole.snapshot().items() if path != skip}
    for turn in range(len(whole.calls) + 3):
        host = a_host(tmp_path / str(turn), kill_after=turn)
        with contextlib.suppress(Killed):
            host.live()
        host.kill_after = None
        assert host.live()["ready"], f"killed after {turn} effects"
        assert {path: body for path, body in host.snapshot().items() if path != skip} == wanted


def test_a_bundle_that_slurm_refuses_is_said_and_the_last_good_one_stays(tmp_path):
    head = a_head(tmp_path)
    head.live()
    head.bring(a_bundle(conf=CONF + "Bogus=1\n"))
    status = head.live()  # it ends: no repetition makes the same bytes right
    assert (status["ready"], status["applied"]) == (False, artifacts.digest(a_bundle()))
    assert "Bogus" in str(status["detail"])


def test_a_host_of_another_name_is_not_made_into_this_one(tmp_path):
    """Two addresses swapped in the spec."""
    node = a_node(tmp_path)
    node.put("/proc/sys/kernel/hostname", "gpu02\n")
    with pytest.raises(StepError, match=r"called 'gpu02'; the plan calls the one at 192\.0\.2\.11 'gpu01'"):
        naming.host(node.machine(), _known(node))
    assert "gpucluster" not in node.text("/etc/hosts")


def _known(node):
    known = host_role.identity.of_host(node.machine(), host_role.Known())
    return host_role.bundles.fetch_and_apply(node.machine(), known)


def test_a_full_host_name_is_as_good(tmp_path):
    node = a_node(tmp_path)
    node.put("/proc/sys/kernel/hostname", "gpu01.example.org\n")
    naming.host(node.machine(), _known(node))
    assert "192.0.2.11 gpu01" in node.text("/etc/hosts")


def test_slurmd_waits_for_home_and_mounts_it_by_fstab(tmp_path):
    node = a_node(tmp_path)
    node.put(mounts.TABLE, "36 35 0:1 / / rw - ext4 /dev/x rw\n")
    with pytest.raises(NotYetError, match="/home is not mounted"):
        mounts.mounted(node.machine(), _known(node))
    assert node.commands("mount") == [("mount", "/home")]
    node.refuses["mount /home"] = "mount.nfs4: Connection refused"
    with pytest.raises(NotYetError, match=r"/home cannot be mounted: mount\.nfs4: Connection refused"):
        mounts.mounted(node.machine(), _known(node))


def test_a_mount_that_fails_is_the_status(tmp_path):
    node = a_node(tmp_path)
    node.put(mounts.TABLE, "")
    node.kill_after = 120
    with pytest.raises(Killed):
        node.live()
    status = node.status()
    assert (status["ready"], status["detail"]) == (False, "mounts: /home is not mounted")
    assert "slurmd.service" not in node.active
    node.kill_after = None
    machine = replace(node.machine(), run=lambda argv, **_: Result(tuple(argv), 0, "running\n", ""))
    assert settled.missing(machine, "d1") == "the agent is running; mounts: /home is not mounted"


def test_no_key_is_a_sentence(tmp_path):
    node = a_node(tmp_path)
    (tmp_path / names.MUNGE_KEY.lstrip("/")).unlink()
    with pytest.raises(StepError, match="run the playbook again"):
        host_role.key.there(node.machine(), _known(node))


HOSTS_FILES = [
    ("the installer's line goes", "127.0.1.1\tgpu01\n", ""),
    (
        "a name of somebody else stays",
        "127.0.1.1 gpu01.example.org gpu01\n",
        "127.0.1.1\tgpu01.example.org\n",
    ),
    ("loopback stays", "127.0.0.1\tlocalhost\n", "127.0.0.1\tlocalhost\n"),
    ("loopback with our name keeps its own", "127.0.0.1 localhost gpu01\n", "127.0.0.1\tlocalhost\n"),
    ("a comment is no line", "# 127.0.1.1 gpu01\n", "# 127.0.1.1 gpu01\n"),
    (
        "an address of another kind stays",
        "::1 localhost gpu01\n10.0.0.1 gpu01\n",
        "::1 localhost gpu01\n10.0.0.1 gpu01\n",
    ),
]


@pytest.mark.parametrize(("text", "kept"), [r[1:] for r in HOSTS_FILES], ids=[r[0] for r in HOSTS_FILES])
def test_our_names_leave_loopback(text, kept):
    assert naming.without_loopback(text, {"gpu01"}) == kept


def test_the_agent_knows_what_ansible_wrote_from_user_data(tmp_path):
    assert agent.identity.is_host(a_node(tmp_path / "a").machine())
    assert not agent.identity.is_host(FakeMachine(tmp_path / "b").machine())
    assert isinstance(effects.store(""), FolderStore)
    assert isinstance(effects.store("us-east-1"), RoleStore)


# --- what the playbook calls ------------------------------------------------------------------


def test_the_key_is_taken_once_and_only_if_it_is_one(tmp_path):
    node = a_node(tmp_path)
    other = base64.b64encode(bytes(128)).decode()
    assert keyfile.take(node.machine(), f"{other}\n") is True
    assert ("systemctl", "stop", "munge.service") in node.commands(
        "systemctl"
    )  # or munged would keep the old key
    before = len(node.commands("systemctl"))
    assert keyfile.take(node.machine(), other) is False
    assert len(node.commands("systemctl")) == before
    assert (tmp_path / names.MUNGE_KEY.lstrip("/")).stat().st_mode & 0o777 == 0o400
    for text, words in (
        ("not base64 SECRET", "not in base64"),
        (base64.b64encode(b"short").decode(), "5 bytes"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            keyfile.take(node.machine(), text)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("sub_state", "status", "why"),
    [
        ("exited", {"ready": True, "applied": "d1"}, ""),
        ("exited", {"ready": True, "applied": "d0"}, "the agent has applied d0, not d1"),
        ("exited", {"ready": False, "detail": "slurm: no"}, "slurm: no"),
        ("running", {"ready": True, "applied": "d1"}, "the agent is running; it has said nothing yet"),
        ("exited", None, "the agent has ended without a word"),
        ("", None, "the agent is not there; it has said nothing yet"),
    ],
)
def test_what_is_waited_for(tmp_path, sub_state, status, why):
    node = a_node(tmp_path)
    if status is not None:
        node.put(settled.STATUS, json.dumps(status))
    machine = replace(node.machine(), run=lambda argv, **_: Result(tuple(argv), 0, f"{sub_state}\n", ""))
    assert settled.missing(machine, "d1") == why
    said = settled.wait(machine, "d1", 1.0)
    assert said == (f"not ready after 1 s: {why}" if why else "")
