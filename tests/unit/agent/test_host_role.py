"""An existing host: from the files of Ansible to running Slurm, and a second run without changes."""

import base64
import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_lab_plan
from support.fake_machine import CONF, FakeMachine, Killed

from gpucluster import artifacts
from gpucluster.agent import effects
from gpucluster.agent.boot import (
    boot_state,
    bundles,
    cluster_identity,
    hostnames,
    identity,
    munge_key,
    slurmctld,
    watchdog,
)
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.disks import mounts
from gpucluster.agent.machine import BundleRefusedError, Machine, NotYetError, StepError
from gpucluster.agent.roles import host as host_role
from gpucluster.agent.services import AwsServices, FolderServices
from gpucluster.artifacts import Artifact
from gpucluster.plan import codec, names
from gpucluster.plan.model import Accounting, ExternalDatabase, LocalDatabase, SlurmOnHosts
from gpucluster.plan.slurm_identity import CLUSTER_NAME, backup_of
from gpucluster.shell import Result

PLAN = a_lab_plan()
HOSTS = "# lab\n192.0.2.10 ctl0\n192.0.2.11 gpu01\n"
MOUNTED = "36 35 0:1 / / rw - ext4 /dev/x rw\n40 36 0:2 / /home rw - nfs4 192.0.2.10:/srv/home rw\n"
KEY = bytes(range(128))


def a_bundle(plan: SlurmOnHosts = PLAN, conf: str = CONF) -> bytes:
    texts = {
        names.PLAN_FILE: codec.dumps(plan),
        f"{names.SLURM_DIR}/slurm.conf": conf,
        names.HOSTS_FILE: HOSTS,
    }
    return artifacts.pack(Artifact(path, text.encode()) for path, text in texts.items())


class Host(FakeMachine):
    """A machine after the Ansible run: agent file, bundle, key, fstab."""

    def furnish(self, node: str, role: str, bundle: bytes | None = None) -> "Host":
        folder = self.root / names.SITE_DIR.lstrip("/")
        told = {"cluster": "lab", "role": role, "node": node, "address": "192.0.2.11", "folder": str(folder)}
        self.put(names.USER_DATA_FILE, json.dumps(told))
        self.put("/proc/sys/kernel/hostname", f"{node}\n")
        self.put("/etc/hosts", f"127.0.0.1\tlocalhost\n127.0.1.1\t{node}.example.org {node}\n")
        self.put(mounts.TABLE, MOUNTED)
        self.put("/etc/pam.d/sshd", "account required pam_nologin.so\n@include common-session\n")
        self.put("/etc/pam.d/common-session", "session optional pam_systemd.so\n")
        self.put("/usr/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so", "")
        for number in range(8):
            self.put(f"/dev/nvidia{number}", "")
        folder.mkdir(parents=True, exist_ok=True)
        self.bring(a_bundle() if bundle is None else bundle)
        key = self.root / names.MUNGE_KEY.lstrip("/")
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_bytes(KEY)
        key.chmod(0o400)
        os.utime(key, (1_700_000_000, 1_700_000_000))  # the agent saves the time of the key
        return self

    def bring(self, bundle: bytes) -> None:
        (self.root / names.SITE_DIR.lstrip("/") / names.BUNDLE_KEY).write_bytes(bundle)

    def machine(self) -> Machine:
        return replace(super().machine(), services=self._folder)

    def _folder(self, region: str) -> FolderServices:
        assert region == ""
        self._effect()
        return FolderServices()

    def run(self) -> dict[str, object]:
        host_role.run(self.machine())
        return self.status()

    def status(self) -> dict[str, object]:
        return json.loads(self.text(f"{names.SITE_DIR}/{names.SITE_STATUS}"))


def a_node(root: Path, **change: object) -> Host:
    return Host(root, **change).furnish("gpu01", names.ROLE_NODE)  # type: ignore[arg-type]


def a_head(root: Path, **change: object) -> Host:
    return Host(root, **change).furnish("ctl0", names.ROLE_HEAD)  # type: ignore[arg-type]


def started(host: FakeMachine) -> list[str]:
    return [argv[2] for argv in host.calls if argv[:2] in (("systemctl", "start"), ("systemctl", "restart"))]


def test_node_comes_up_in_order_without_a_cloud_and_ends(tmp_path):
    node = a_node(tmp_path)
    status = node.run()
    assert (status["ready"], status["applied"]) == (True, artifacts.digest(a_bundle()))
    assert [s["name"] for s in status["steps"]] == [name for name, _ in host_role.NODE]  # type: ignore[index,attr-defined]
    assert started(node) == ["munge.service", "slurmd.service"]
    assert node.text("/run/gpucluster-agent/slurmd.env") == (
        'SLURMD_OPTIONS="-N gpu01 --conf-server 192.0.2.10:6817"\n'  # never -b: a host has one life
    )
    assert "--origin=192.0.2.11" in node.text("/run/gpucluster-agent/munge.env")
    assert not node.commands("nft")


def test_head_comes_up_in_order(tmp_path):
    head = a_head(tmp_path)
    status = head.run()
    assert (status["ready"], [s["name"] for s in status["steps"]]) == (True, [n for n, _ in host_role.HEAD])  # type: ignore[index,attr-defined]
    assert started(head) == ["munge.service", "slurmctld.service"]


@pytest.mark.parametrize("a_host", [a_node, a_head])
def test_second_run_starts_and_writes_nothing(tmp_path, a_host):
    host = a_host(tmp_path)
    host.run()
    before, units = host.snapshot(), dict(host.active)
    assert host.run()["ready"]
    assert (host.snapshot(), host.active) == (before, units)


@pytest.mark.parametrize("a_host", [a_node, a_head])
def test_head_killed_after_any_effect_reaches_the_same_state(tmp_path, a_host):
    whole = a_host(tmp_path / "whole")
    whole.run()
    skip = names.USER_DATA_FILE.lstrip("/")  # it names the folder
    wanted = {path: body for path, body in whole.snapshot().items() if path != skip}
    for turn in range(len(whole.calls) + 3):
        host = a_host(tmp_path / str(turn), kill_after=turn)
        with contextlib.suppress(Killed):
            host.run()
        host.kill_after = None
        assert host.run()["ready"], f"killed after {turn} effects"
        assert {path: body for path, body in host.snapshot().items() if path != skip} == wanted


def test_new_munge_key_restarts_slurmd(tmp_path):
    """Regression: with SlurmdTimeout 300, a node stayed DOWN for more than ten minutes after its key had changed."""
    node = a_node(tmp_path)
    node.run()
    node.calls.clear()
    text = base64.b64encode(bytes(range(1, 129))).decode()
    assert munge_key.install(node.machine(), text)
    assert "munge.service" not in node.active
    assert node.run()["ready"]
    assert started(node) == ["munge.service", "slurmd.service"]
    node.calls.clear()
    assert node.run()["ready"]
    assert started(node) == ["munge.service"]  # `start` of a running unit changes nothing


def test_bundle_that_slurm_refuses_is_reported_and_last_good_one_stays(tmp_path):
    head = a_head(tmp_path)
    head.run()
    head.bring(a_bundle(conf=CONF + "Bogus=1\n"))
    status = head.run()  # it ends: no repetition makes the same bytes right
    assert (status["ready"], status["applied"]) == (False, artifacts.digest(a_bundle()))
    assert "Bogus" in str(status["detail"])


def test_host_with_another_name_is_refused(tmp_path):
    """Two addresses are swapped in the spec."""
    node = a_node(tmp_path)
    node.put("/proc/sys/kernel/hostname", "gpu02\n")
    with pytest.raises(
        StepError, match=r"the host name is 'gpu02', expected 'gpu01' for the host at 192\.0\.2\.11"
    ):
        hostnames.for_host(node.machine(), _known(node))
    assert "gpucluster" not in node.text("/etc/hosts")


def _known(node):
    known = host_role.identity.from_host_file(node.machine(), host_role.BootState())
    return host_role.bundles.fetch_and_apply(node.machine(), known)


def test_fully_qualified_host_name_is_accepted(tmp_path):
    node = a_node(tmp_path)
    node.put("/proc/sys/kernel/hostname", "gpu01.example.org\n")
    hostnames.for_host(node.machine(), _known(node))
    assert "192.0.2.11 gpu01" in node.text("/etc/hosts")


def test_slurmd_waits_for_home_and_mounts_it_by_fstab(tmp_path):
    node = a_node(tmp_path)
    node.put(mounts.TABLE, "36 35 0:1 / / rw - ext4 /dev/x rw\n")
    with pytest.raises(NotYetError, match="/home is not mounted"):
        mounts.mount_from_fstab(node.machine(), _known(node))
    assert node.commands("mount") == [("mount", "/home")]
    node.refuses["mount /home"] = "mount.nfs4: Connection refused"
    with pytest.raises(NotYetError, match=r"/home cannot be mounted: mount\.nfs4: Connection refused"):
        mounts.mount_from_fstab(node.machine(), _known(node))


def test_failed_mount_is_in_the_status(tmp_path):
    node = a_node(tmp_path)
    node.put(mounts.TABLE, "")
    node.kill_after = 120
    with pytest.raises(Killed):
        node.run()
    status = node.status()
    assert (status["ready"], status["detail"]) == (False, "mounts: /home is not mounted")
    assert "slurmd.service" not in node.active
    node.kill_after = None
    machine = replace(node.machine(), run=lambda argv, **_: Result(tuple(argv), 0, "running\n", ""))
    assert host_role.missing(machine, "d1") == "the agent is running; mounts: /home is not mounted"


def test_missing_key_has_a_message(tmp_path):
    node = a_node(tmp_path)
    (tmp_path / names.MUNGE_KEY.lstrip("/")).unlink()
    with pytest.raises(StepError, match="run the playbook again"):
        host_role.munge_key.use_installed(node.machine(), _known(node))


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


@pytest.mark.parametrize(("text", "saved"), [r[1:] for r in HOSTS_FILES], ids=[r[0] for r in HOSTS_FILES])
def test_our_names_leave_loopback(text, saved):
    assert hostnames.without_loopback(text, {"gpu01"}) == saved


def test_agent_reads_the_identity_that_ansible_wrote(tmp_path):
    assert identity.is_existing_host(a_node(tmp_path / "a").machine())
    assert not identity.is_existing_host(FakeMachine(tmp_path / "b").machine())
    assert isinstance(effects.services(""), FolderServices)
    assert isinstance(effects.services("us-east-1"), AwsServices)


# --- what the playbook calls ------------------------------------------------------------------


def test_only_a_valid_key_is_installed_and_only_once(tmp_path):
    node = a_node(tmp_path)
    other = base64.b64encode(bytes(128)).decode()
    assert munge_key.install(node.machine(), f"{other}\n") is True
    assert ("systemctl", "stop", "munge.service") in node.commands(
        "systemctl"
    )  # or munged would keep the old key
    before = len(node.commands("systemctl"))
    assert munge_key.install(node.machine(), other) is False
    assert len(node.commands("systemctl")) == before
    assert (tmp_path / names.MUNGE_KEY.lstrip("/")).stat().st_mode & 0o777 == 0o400
    for text, words in (
        ("not base64 SECRET", "not in base64"),
        (base64.b64encode(b"short").decode(), "5 bytes"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            munge_key.install(node.machine(), text)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("sub_state", "status", "why"),
    [
        ("exited", {"ready": True, "applied": "d1"}, ""),
        ("exited", {"ready": True, "applied": "d0"}, "the agent has applied d0, not d1"),
        ("exited", {"ready": False, "detail": "slurm: no"}, "slurm: no"),
        ("running", {"ready": True, "applied": "d1"}, "the agent is running; it has reported no step yet"),
        ("exited", None, "the agent has ended and reported no reason"),
        ("", None, "the agent is missing; it has reported no step yet"),
    ],
)
def test_reasons_to_wait(tmp_path, sub_state, status, why):
    node = a_node(tmp_path)
    if status is not None:
        node.put(host_role.STATUS, json.dumps(status))
    machine = replace(node.machine(), run=lambda argv, **_: Result(tuple(argv), 0, f"{sub_state}\n", ""))
    assert host_role.missing(machine, "d1") == why
    said = host_role.wait(machine, "d1", 1.0)
    assert said == (f"not ready after 1 s: {why}" if why else "")


# --- an existing head ----------------------------------------------------------------------------------
class Site(Host):
    """An existing head. Its job ends after some pauses of the agent."""

    shown: dict[str, tuple[str, ...]]
    job: str = ""
    reasons: dict[str, str]
    ends_after: int = 3

    def machine(self) -> Machine:
        up = lambda _host, _port: "slurmctld.service" in self.active  # noqa: E731
        return replace(super().machine(), listening=up)

    def _pause(self, seconds: float) -> None:
        super()._pause(seconds)
        self.ends_after -= seconds == host_role.RETRY_S
        if not self.ends_after:
            self.job = ""

    def _scontrol(self, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str]:
        if argv[1] == "update":
            fields = dict(word.split("=", 1) for word in argv[2:])
            for name in fields["nodename"].split(","):
                base = "ALLOCATED" if name == self.job else "IDLE"
                self.shown[name] = (base, "DRAIN") if fields["state"] == "drain" else (base,)
                self.reasons[name] = fields.get("reason", self.reasons.get(name, ""))
            return 0, ""
        if "nodes" in argv:
            listed = [
                {
                    "name": name,
                    "state": list(words),
                    "reason": self.reasons.get(name, ""),
                    "reason_set_by_user": "root",
                }
                for name, words in self.shown.items()
            ]
            return 0, json.dumps({"nodes": listed})
        return super()._scontrol(argv, env)

    def _outcome(
        self, argv: tuple[str, ...], stdin: str | bytes | None, env: Mapping[str, str] | None
    ) -> tuple[int, str]:
        if argv[0] == "squeue" and self.job:
            return 0, f"7|RUNNING|gpu|{self.job}|\n"
        return super()._outcome(argv, stdin, env)


def a_site(root: Path) -> Site:
    site = Site(root)
    site.furnish("ctl0", names.ROLE_HEAD)
    site.shown, site.reasons = {}, {}
    return site


def test_an_existing_head_drains_the_hosts_itself_and_waits(tmp_path):
    """A site has no daemon. The playbook reports the reason when its time is over."""
    site = a_site(tmp_path)
    plan = a_lab_plan()
    last = plan.pools[-1].hosts()[-1][0]
    site.shown = {name: ("IDLE",) for pool in plan.pools for name, _ in pool.hosts()}
    assert site.run()["ready"]
    site.job, site.shown[last] = last, ("ALLOCATED",)
    pool = plan.pools[-1]
    span = replace(pool.slots[-1], last=pool.slots[-1].last - 1)
    fewer = replace(pool, slots=(*pool.slots[:-1], span), addresses=pool.addresses[:-1])
    smaller = replace(plan, pools=(*plan.pools[:-1], fewer))
    site.bring(a_bundle(smaller))
    digest = artifacts.digest(a_bundle(smaller))
    status = site.run()
    assert (status["ready"], status["applied"]) == (True, digest)
    assert site.ends_after == 0, "the agent did not wait for the job"
    (drain,) = [argv for argv in site.commands("scontrol") if "state=drain" in argv]
    assert drain[2:4] == (f"nodename={last}", "state=drain")
    assert drain[4].startswith("reason=gpucluster: [bundle] ")


def test_an_existing_head_lifts_its_own_drains_only(tmp_path):
    site = a_site(tmp_path)
    site.shown = {"gpu01": ("IDLE", "DRAIN"), "gpu02": ("IDLE", "DRAIN"), "gpu03": ("IDLE", "DRAIN")}
    site.reasons = {
        "gpu01": "gpucluster: [bundle] removed",
        "gpu02": "broken fan",
        "gpu03": "gpucluster: [operator] x",
    }
    assert site.run()["ready"]
    assert [name for name, words in site.shown.items() if "DRAIN" not in words] == ["gpu01"]


class Watched:
    """A head that is ready, and the timer's look at it."""

    def __init__(self, root: Path, agent: str = "exited") -> None:
        self.host, self.agent = a_head(root), agent
        self.host.run()

    def look(self) -> str:
        whole = self.host.machine()

        def run(argv, **more):
            if argv[:2] == ["systemctl", "show"]:
                return Result(tuple(argv), 0, f"{self.agent}\n", "")
            return whole.run(argv, **more)

        return host_role.watch(replace(whole, run=run))

    @property
    def kills(self) -> int:
        return self.host.calls.count(("systemctl", "kill", "--signal=KILL", "slurmctld.service"))


def test_timer_kills_a_slurmctld_that_does_not_answer_after_the_bound(tmp_path):
    head = Watched(tmp_path)
    assert head.look() == ""
    head.host.hung, began = True, head.host.clock
    while head.host.hung:
        assert "slurmctld runs, but has not answered for" in head.look() or head.kills
        assert head.host.clock - began < watchdog.HUNG_S + 120
        head.host.clock += 60
    assert head.kills == 1
    assert head.host.clock - began >= watchdog.HUNG_S
    assert head.look() == ""
    assert head.host.active["slurmctld.service"] >= 1


def test_timer_leaves_slurmctld_to_an_agent_that_works(tmp_path):
    head = Watched(tmp_path, agent="running")
    head.host.hung = True
    for _ in range(5):
        assert head.look() == ""
        head.host.clock += 300
    assert head.kills == 0


def test_timer_deletes_a_reservation_once_no_job_uses_it(tmp_path):
    head = Watched(tmp_path)
    left = '{"reservations": [{"name": "gpucluster-old", "node_list": "gpu01"}]}'
    head.host.answers["scontrol show reservations"] = left
    head.host.refuses["scontrol delete"] = "Requested reservation is in use"
    assert head.look() == "the reservation gpucluster-old changes when no job uses it"
    del head.host.refuses["scontrol delete"]
    assert head.look() == ""
    assert head.host.calls[-1] == ("scontrol", "delete", "ReservationName=gpucluster-old")


LOCAL = Accounting(database=LocalDatabase(buffer_pool_mib=128), keep_s=86400)
SITE = ExternalDatabase(host="db.example.org", port=3306, secret="arn:a", ca="/etc/ca.pem")
ELSEWHERE = replace(LOCAL, database=SITE)
OTHER = replace(LOCAL, database=replace(SITE, host="db.example.net"))
OTHER_NAME = (
    "slurmctld's state is that of the cluster 'lab', not 'labor': CLUSTER NAME MISMATCH; `gpucluster diff OLD NEW` on your own machine "
    "has the commands that compare job ids, copy slurmctld's state and remove /var/spool/slurmctld/clustername, or says how to split the edit"
)


# A bundle whose cluster is not that of slurmctld's state. tests/slurm/test_cluster_identity.py has the real daemons
def with_accounting(accounting: Accounting | None) -> SlurmOnHosts:
    return replace(PLAN, slurm=replace(PLAN.slurm, accounting=accounting))


def a_head_with_state(root: Path, text: str) -> Host:
    head = a_head(root)
    assert head.run()["ready"]
    if text:
        head.put(CLUSTER_NAME, text)
    head.calls.clear()
    return head


RENAMED = a_bundle(replace(PLAN, name="labor"), conf=CONF + "ClusterName=labor\n")


def test_renamed_cluster_keeps_slurmctlds_state_under_the_new_name(tmp_path):
    head = a_head_with_state(tmp_path, "lab|7\n")
    head.bring(RENAMED)
    status = head.run()
    assert (status["ready"], status["applied"]) == (True, artifacts.digest(RENAMED))
    assert head.text(CLUSTER_NAME) == "labor|7\n"
    assert head.text(f"{backup_of('labor')}/clustername") == "lab|7\n"
    unit = "slurmctld.service"
    acts = [
        one[1] for one in head.calls if one[0] == "cp" or (one[-1] == unit and one[1] in ("stop", "start"))
    ]
    assert acts == ["stop", "--archive", "start"]
    assert ("scontrol", "reconfigure") not in head.calls


class Choosy(Host):
    """slurmctld does not start with `nosuch` in slurm.conf."""

    def _systemctl(self, verb: str, *rest: str) -> tuple[int, str]:
        bad = (
            "nosuch" in self.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf")
            if rest[-1] == "slurmctld.service"
            else False
        )
        return (1, "") if verb == "start" and bad else super()._systemctl(verb, *rest)


def test_renamed_cluster_has_its_old_name_again_where_slurmctld_does_not_start(tmp_path):
    head = Choosy(tmp_path).furnish("ctl0", names.ROLE_HEAD)
    assert head.run()["ready"]
    head.put(CLUSTER_NAME, "lab|7\n")
    head.bring(a_bundle(replace(PLAN, name="labor"), conf=CONF + "Nodes=nosuch\n"))
    status = head.run()
    assert status["applied"] == artifacts.digest(a_bundle())
    assert "the new bundle is not applied: slurmctld does not start" in str(status["detail"])
    assert head.text(CLUSTER_NAME) == "lab|7\n"
    assert head.active["slurmctld.service"]


def test_renamed_cluster_killed_at_any_effect_is_renamed_by_the_next_run(tmp_path):
    for kill_after in range(1, 200):
        head = a_head_with_state(tmp_path / str(kill_after), "lab|7\n")
        head.bring(RENAMED)
        head.kill_after = kill_after
        try:
            head.run()
        except Killed:
            head.kill_after = None
            head.run()
        else:
            assert kill_after > 5
            break
        assert head.text(CLUSTER_NAME) == "labor|7\n"
        assert head.text(f"{backup_of('labor')}/clustername") == "lab|7\n"
    else:
        pytest.fail("the run never ended")


class Full(Host):
    """The disk is full in the middle of the copy."""

    def _outcome(
        self, argv: tuple[str, ...], stdin: str | bytes | None, env: Mapping[str, str] | None
    ) -> tuple[int, str]:
        if argv[0] != "cp":
            return super()._outcome(argv, stdin, env)
        Path(argv[-1]).mkdir(exist_ok=True)
        (Path(argv[-1]) / "job_state").write_text("half")
        return 1, "No space left on device"


def test_copy_that_fails_leaves_no_half_and_the_earlier_copy(tmp_path):
    """slurmctld saves its state on the same disk, and the half copy filled it."""
    head = Full(tmp_path).furnish("ctl0", names.ROLE_HEAD)
    assert head.run()["ready"]
    head.put(CLUSTER_NAME, "lab|7\n")
    head.put(f"{backup_of('labor')}/job_state", "earlier")
    head.bring(RENAMED)
    status = head.run()
    assert "No space left on device" in str(status["refused"])
    assert (head.text(CLUSTER_NAME), head.active["slurmctld.service"] > 0) == ("lab|7\n", True)
    folder = (tmp_path / CLUSTER_NAME.lstrip("/")).parent
    assert sorted(one.name for one in folder.parent.glob(f"{folder.name}*")) == [
        "slurmctld",
        "slurmctld.before-labor",
    ]
    assert head.text(f"{backup_of('labor')}/job_state") == "earlier"


def test_state_behind_a_link_is_copied_itself(tmp_path):
    """The copy was another link to the state, in which the name was written."""
    head = a_head_with_state(tmp_path, "lab|7\n")
    folder = (tmp_path / CLUSTER_NAME.lstrip("/")).parent
    elsewhere = folder.rename(tmp_path / "data")
    folder.symlink_to(elsewhere)
    head.bring(RENAMED)
    assert head.run()["ready"]
    assert (elsewhere / "clustername").read_text() == "labor|7\n"
    assert head.text(f"{backup_of('labor')}/clustername") == "lab|7\n"


@pytest.mark.parametrize("accounting", ["old", "new"])
def test_renamed_cluster_with_accounting_is_refused_and_nothing_stops(tmp_path, accounting):
    """Its queued jobs would never start."""
    old = with_accounting(LOCAL if accounting == "old" else None)
    new = replace(with_accounting(LOCAL if accounting == "new" else None), name="labor")
    assert refusal(tmp_path, old, new, "lab|7\n") == OTHER_NAME


def test_state_of_a_third_cluster_is_refused_and_never_renamed(tmp_path):
    head = a_head(tmp_path)
    head.put(CLUSTER_NAME, "lab|9\n")
    assert head.run()["ready"]
    head.put(CLUSTER_NAME, "trial|7\n")
    head.bring(RENAMED)
    status = head.run()
    assert "the cluster 'trial', not 'labor': CLUSTER NAME MISMATCH" in str(status["refused"])
    assert head.text(CLUSTER_NAME) == "trial|7\n"


def test_state_with_another_number_than_at_slurmctlds_last_start_is_never_renamed(tmp_path):
    """Only the name was compared, so the state of another cluster with the same name was renamed."""
    head = a_head(tmp_path)
    head.put(CLUSTER_NAME, "lab|7\n")
    assert head.run()["ready"]
    head.put(CLUSTER_NAME, "lab|9\n")
    head.bring(RENAMED)
    assert head.run()["refused"] == (
        "slurmctld's state has the number 9, and slurmctld last started here with 7: the state may be that of another cluster 'lab'; "
        "if it is yours, copy /var/spool/slurmctld and remove /var/spool/slurmctld/clustername"
    )
    assert head.text(CLUSTER_NAME) == "lab|9\n"


@pytest.mark.parametrize("old", [LOCAL, ELSEWHERE])
def test_state_with_another_number_is_not_removed_for_another_database(tmp_path, old):
    new = with_accounting(OTHER)
    said = refusal(tmp_path, with_accounting(old), new, "lab|9\n", started="lab|7")
    assert "has the number 9, and slurmctld last started here with 7" in said
    assert "gpucluster diff" not in said


@pytest.mark.parametrize("started", ["", "lab", "lab|7"])
def test_number_that_is_the_same_or_not_known_does_not_refuse(tmp_path, started):
    """An older agent saved none, and Slurm 22.05 has none."""
    new = replace(with_accounting(LOCAL), times=replace(PLAN.times, poll_s=7))
    assert refusal(tmp_path, with_accounting(LOCAL), new, "lab|7\n", started=started) == ""


@pytest.mark.parametrize("text", ["", "labor|7\n"])
def test_renamed_cluster_is_applied_without_the_old_name(tmp_path, text):
    head = a_head_with_state(tmp_path, text)
    head.bring(RENAMED)
    assert head.run()["applied"] == artifacts.digest(RENAMED)
    assert not any(one[0] == "cp" for one in head.calls)


def test_first_bundle_of_a_head_with_the_state_of_another_cluster_is_refused_with_what_helps_there(tmp_path):
    """It named `gpucluster diff OLD NEW`, and nobody had the old spec."""
    head = a_head(tmp_path)
    head.put(CLUSTER_NAME, "trial|7\n")
    machine = head.machine()
    state = slurmctld.fetch_bundle(machine, identity.from_host_file(machine, BootState()))
    with pytest.raises(BundleRefusedError) as refused:
        cluster_identity.check(machine, state)
    assert str(refused.value) == (
        "slurmctld's state is that of the cluster 'trial', not 'lab': CLUSTER NAME MISMATCH; this head has no earlier bundle. "
        "To keep the jobs, first apply a spec with `name: trial`; to begin without them, stop slurmctld and move what is in "
        "/var/spool/slurmctld away"
    )


def test_jobs_of_a_foreign_state_are_kept_by_a_first_spec_with_its_name(tmp_path):
    head = Host(tmp_path).furnish("ctl0", names.ROLE_HEAD, RENAMED)
    head.put(CLUSTER_NAME, "labor|7\n")
    assert head.run()["ready"]
    head.bring(a_bundle())
    assert head.run()["ready"]
    assert head.text(CLUSTER_NAME) == "lab|7\n"


@pytest.mark.parametrize("text", ["", "\n", "|7\n"])
def test_state_without_a_name_is_refused_before_slurmctld_reads_the_bundle(tmp_path, text):
    """slurmctld ends with such a file (S50), which a full disk leaves."""
    head = a_head_with_state(tmp_path, "lab|7\n")
    head.put(CLUSTER_NAME, text)
    head.bring(a_bundle(conf=CONF + "Nodes=other\n"))
    status = head.run()
    assert status["refused"] == (
        "/var/spool/slurmctld/clustername has no name: CLUSTER NAME MISMATCH; if /var/spool/slurmctld is the state of this cluster, "
        "remove that file: slurmctld writes it at its start"
    )
    assert status["applied"] == artifacts.digest(a_bundle())
    assert ("scontrol", "reconfigure") not in head.calls
    assert head.text(CLUSTER_NAME) == text


@pytest.mark.parametrize(
    ("old", "new", "text", "refused"),
    [
        (None, LOCAL, "lab|7", True),
        (None, LOCAL, "lab", False),  # 22.05 has no number
        (None, LOCAL, "", False),
        (LOCAL, ELSEWHERE, "lab|7", True),
        (ELSEWHERE, OTHER, "lab|7", True),
        (LOCAL, None, "lab|7", False),
        (LOCAL, replace(LOCAL, keep_s=3600, database=LocalDatabase(buffer_pool_mib=256)), "lab|7", False),
        (ELSEWHERE, replace(LOCAL, database=replace(SITE, secret="arn:b", ca="/etc/b.pem")), "lab|7", False),
    ],
)
def test_another_database_is_refused_where_the_state_has_a_number(tmp_path, old, new, text, refused):
    said = refusal(tmp_path, with_accounting(old), with_accounting(new), text)
    assert ("has the number of another accounting database: CLUSTER ID MISMATCH" in said) is refused


def refusal(root: Path, old: SlurmOnHosts, new: SlurmOnHosts, text: str, *, started: str = "") -> str:
    """What the check says of `new` on a head with the bundle of `old`, which it then goes on with."""
    head = Host(root).furnish("ctl0", names.ROLE_HEAD, a_bundle(old))
    machine = head.machine()
    state = slurmctld.fetch_bundle(machine, identity.from_host_file(machine, BootState()))
    before = boot_state.require(state.bundle)
    bundles.apply(machine, before.digest)
    boot_state.update(machine, good=before.digest, clustername=started)
    if text:
        head.put(CLUSTER_NAME, text)
    head.bring(a_bundle(new, conf="ClusterName=lab\n"))
    state = cluster_identity.check(machine, slurmctld.fetch_bundle(machine, state))
    assert (boot_state.require(state.bundle).plan == old) is bool(state.refused) or old == new
    return state.refused
