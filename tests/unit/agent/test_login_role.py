"""Login machine: boot until sshd, without slurmd; then it follows the bundle. Also the standby head."""

from dataclasses import replace

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.agent.boot import slurmctld, sshd
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.disks import mounts, state_move
from gpucluster.agent.machine import NotYetError
from gpucluster.agent.roles import login, standby
from gpucluster.plan import codec, names, state_storage
from gpucluster.plan.model import Efs, Login, Mount, Sessions, Slurm, Standby, User

PLAN = replace(
    a_small_plan(),
    login=Login(
        machine="m7i.xlarge",
        zone="us-east-1a",
        names=("trial-login-1", "trial-login-2"),
        sessions=Sessions(memory_mib=4096, tasks=500, cpus=2),
    ),
    users=(User(name="vision", uid=5001, keys=("ssh-ed25519 AAA v",)),),
)
STANDBY = Standby(machine="m7i.large", zone="us-east-1b", address="10.42.32.10", state="/home")


def a_machine(tmp_path, plan=PLAN, role=names.ROLE_LOGIN, name="trial-login-2"):
    machine = FakeMachine(tmp_path, role=role)
    told = {"cluster": "trial", "region": "us-east-1", "bucket": "bkt", "key": names.BUNDLE_KEY, "role": role}
    machine.put(names.USER_DATA_FILE, codec.dumps({**told, "name": name}))
    machine.services.objects[names.BUNDLE_KEY] = a_bundle(plan)
    machine.services.value = b"k" * 64
    machine.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    if plan.head.standby is not None:  # the head has put its state on the mount of both
        marker = state_move.Marker(cluster=plan.name, phase=state_move.Phase.IN_USE)
        machine.put(f"{state_storage.state_root(plan)}/{state_move.MARKER}", codec.dumps(marker))
    return machine


def run_once(machine, table=login.BOOT, known=None):
    return login.run_once(machine.machine(), table, known or BootState())


def test_login_machine_boots_in_order_with_sshd_last(tmp_path):
    machine = a_machine(tmp_path)
    known, done = run_once(machine)
    assert done
    assert list(machine.active) == ["munge.service", "sackd.service", "ssh.service"]
    assert machine.hostname == "trial-login-2"
    assert "10.42.0.10 head" in machine.text("/etc/hosts")
    assert machine.text(login.SACKD) == 'SACKD_OPTIONS="--conf-server 10.42.0.10:6817"\n'
    assert ("ssh-keygen", "-A") in machine.calls
    assert "MemoryMax=4096M\nTasksMax=500\nCPUQuota=200%\n" in machine.text(login.USER_SLICE)
    assert "MemoryMax=infinity" in machine.text(login.ROOT_SLICE)
    assert machine.services.puts == []  # its role writes nothing
    before, starts = machine.snapshot(), dict(machine.active)
    machine.put(sshd.HOST_KEY, "key")
    assert run_once(machine, login.FOLLOW, known) == (known, True)
    assert {k: v for k, v in machine.snapshot().items() if k in before} == before
    assert machine.active == starts


def test_sshd_takes_keys_only_and_only_those_that_root_wrote(tmp_path):
    machine = a_machine(tmp_path)
    run_once(machine)
    rules = machine.text(sshd.SETTINGS).splitlines()
    for rule in (
        "PermitRootLogin no",
        "PasswordAuthentication no",
        "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u",
    ):
        assert rule in rules


def test_new_users_do_not_restart_sshd(tmp_path):
    machine = a_machine(tmp_path)
    known, _ = run_once(machine)
    machine.put(sshd.HOST_KEY, "key")
    more = replace(PLAN, users=(*PLAN.users, User(name="speech", uid=5002, keys=("ssh-ed25519 BBB s",))))
    machine.services.objects[names.BUNDLE_KEY] = a_bundle(more)
    _, done = run_once(machine, login.FOLLOW, known)
    assert done
    assert machine.text(f"{names.KEY_FOLDER}/speech") == "ssh-ed25519 BBB s\n"
    assert machine.active["ssh.service"] == 1


def test_before_sackd_slurms_files_are_linked_from_the_bundle(tmp_path):
    machine = a_machine(tmp_path, replace(PLAN, slurm=Slurm(version="22.05")))
    run_once(machine)
    assert (tmp_path / "etc/slurm/slurm.conf").is_symlink()
    assert "sackd.service" not in machine.active


def test_unknown_login_name_stops_the_boot(tmp_path, caplog):
    _, done = run_once(a_machine(tmp_path, name="somebody"))
    assert not done
    assert "name is 'somebody', expected one of trial-login-1, trial-login-2" in caplog.text


def test_login_machine_waits_for_the_munge_key(tmp_path):
    machine = a_machine(tmp_path)
    machine.services.value = None
    _, done = run_once(machine)
    assert not done
    assert "ssh.service" not in machine.active


@pytest.mark.parametrize("role", [names.ROLE_LOGIN, names.ROLE_STANDBY])
def test_everybody_knows_both_heads(tmp_path, role):
    plan = replace(
        PLAN, storage=(Mount(path="/home", source=Efs()),), head=replace(PLAN.head, standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, role)
    table = login.BOOT if role == names.ROLE_LOGIN else standby.BOOT
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = machine.active["gpucluster-elastic.service"] = 1
    _, done = run_once(machine, tuple(row for row in table if row[0] != "mounts"))
    assert done
    hosts = machine.text("/etc/hosts")
    assert "10.42.0.10 head" in hosts
    assert "10.42.32.10 trial-standby" in hosts
    if role == names.ROLE_STANDBY:
        assert machine.hostname == "trial-standby"
        assert "munge.service" in machine.active
        assert ("mount", "--bind", "/home/.gpucluster/slurmctld", "/var/spool/slurmctld") in machine.calls
    else:
        assert "10.42.0.10:6817,10.42.32.10:6817" in machine.text(login.SACKD)


@pytest.mark.parametrize("why", ["the head's listens", "it is too long away"])
def test_standby_daemon_waits_for_the_daemon_of_the_head(tmp_path, why):
    """Regression: it took the lease at its boot. Then slurmctld was active on one head, and the daemon on the other."""
    plan = replace(
        PLAN, storage=(Mount(path="/home", source=Efs()),), head=replace(PLAN.head, standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, names.ROLE_STANDBY)
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = 1
    known, _ = run_once(machine, tuple(row for row in standby.BOOT if row[0] not in ("mounts", "elastic")))
    asked: list[tuple[str, int]] = []
    away = replace(machine.machine(), listening=lambda *place: asked.append(place) or False)
    with pytest.raises(NotYetError, match="does not listen"):
        standby.run_daemon(away, known)
    assert f"{slurmctld.DAEMON}.service" not in machine.active
    assert asked == [("10.42.0.10", names.REGISTRATION_PORT)]
    if why == "the head's listens":
        standby.run_daemon(replace(away, listening=lambda *_: True), known)
    else:
        machine.clock += standby.HEAD_FIRST_S
        standby.run_daemon(away, known)
    assert machine.active[f"{slurmctld.DAEMON}.service"] == 1


HEAD, SECOND = "10.42.0.10", "10.42.32.10"
SLURM_PORT, DAEMONS_PORT = 6817, names.REGISTRATION_PORT


@pytest.fixture
def second(tmp_path):
    """The standby head with all services running, and its BootState."""
    plan = replace(
        PLAN, storage=(Mount(path="/home", source=Efs()),), head=replace(PLAN.head, standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, names.ROLE_STANDBY)
    machine.address = SECOND
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = machine.active["gpucluster-elastic.service"] = 1
    known, done = run_once(machine, tuple(row for row in standby.BOOT if row[0] not in ("mounts", "elastic")))
    assert done
    standby.run_daemon(replace(machine.machine(), listening=lambda *_: False), known)
    return machine, known


def starts(machine):
    return machine.active[f"{slurmctld.DAEMON}.service"]


@pytest.mark.parametrize(
    ("listens", "gives"),
    [
        ({(SECOND, DAEMONS_PORT), (HEAD, SLURM_PORT)}, True),
        ({(SECOND, DAEMONS_PORT)}, False),  # the head is away
        ({(HEAD, SLURM_PORT), (HEAD, DAEMONS_PORT)}, False),  # the head's daemon acts
    ],
    ids=["the head is back", "the head is away", "all is as it was"],
)
def test_standby_daemon_stops_when_slurmctld_of_the_head_is_active(second, listens, gives):
    machine, known = second
    before = starts(machine)
    there_is = replace(machine.machine(), listening=lambda *place: place in listens)
    standby.run_daemon(there_is, known)
    assert starts(machine) == before + gives


def test_standby_daemon_yields_the_lease_only_at_intervals(second):
    machine, known = second
    before = starts(machine)
    always = replace(machine.machine(), listening=lambda *place: place != (HEAD, DAEMONS_PORT))
    for _ in range(3):
        standby.run_daemon(always, known)
        machine.clock += 60.0
    assert starts(machine) == before + 1
    machine.clock += standby.RETRY_S
    standby.run_daemon(always, known)
    assert starts(machine) == before + 2


def test_local_conf_of_standby_lists_the_standby_first(second):
    machine, known = second
    others = "ClusterName=trial\n{}SlurmUser=slurm\n# SlurmctldHost=trial-standby(no)\n"
    hosts = [f"SlurmctldHost=trial-head({HEAD})\n", f"SlurmctldHost=trial-standby({SECOND})\n"]
    (known.bundle.tree / slurmctld.CONF).write_text(others.format("".join(hosts)))
    standby.write_local_conf(machine.machine(), known)
    assert machine.text(names.STANDBY_CONF) == others.format("".join(reversed(hosts)))


def test_stopped_slurmctld_of_standby_waits_for_the_head(second):
    """Regression: on a busy machine slurmctld of the head took 10 s to start. The standby became primary again, with old state."""
    machine, known = second
    heads: set[str] = set()
    there_is = replace(machine.machine(), listening=lambda host, _: host in {SECOND, *heads})
    for away_s, comes in ((standby.HEAD_START_S, False), (5.0, True)):
        machine.active.pop("slurmctld.service", None)
        with pytest.raises(NotYetError, match="starts its own"):
            standby.run_backup(there_is, known)
        machine.clock += away_s
        heads |= {HEAD} if comes else set()
        standby.run_backup(there_is, known)
        assert "slurmctld.service" in machine.active


@pytest.mark.parametrize(
    ("role", "acts"), [(names.ROLE_HEAD, True), (names.ROLE_HEAD, False), (names.ROLE_STANDBY, True)]
)
def test_returning_head_stops_slurmctld_of_standby_before_start(second, role, acts):
    """When slurmctld itself asks, it hands over after 29 s without a save: "Old state possible"."""
    machine, known = second
    machine.active.pop("slurmctld.service")
    machine.calls.clear()
    known = replace(known, identity=replace(known.identity, role=role, address=HEAD))
    left = [acts, acts, acts]  # it takes a moment
    up = lambda host, _: host == HEAD or (bool(left) and left.pop())  # noqa: E731
    slurmctld.apply_bundle(replace(machine.machine(), listening=up), known)
    asked, begun = ("scontrol", "shutdown", "slurmctld"), ("systemctl", "start", "slurmctld.service")
    assert (asked in machine.calls) == (role == names.ROLE_HEAD and acts)
    assert machine.calls.index(begun) > (machine.calls.index(asked) if asked in machine.calls else -1)
    if asked in machine.calls:
        assert left == []


def test_head_that_fails_to_start_stops_the_standby_only_limited_times(second):
    """Regression: each try of the head ended it again, so the cluster had no controller while the head could not start."""
    machine, known = second
    machine.active.pop("slurmctld.service")
    machine.calls.clear()
    known = replace(known, identity=replace(known.identity, role=names.ROLE_HEAD, address=HEAD))
    asked, up = ("scontrol", "shutdown", "slurmctld"), {SECOND}
    there_is = replace(machine.machine(), listening=lambda host, _: host in up)
    for _ in range(slurmctld.STANDBY_STOPS + 2):
        with pytest.raises(NotYetError, match="does not answer"):
            slurmctld.apply_bundle(there_is, known)
        machine.active.pop("slurmctld.service")  # it died
    assert machine.calls.count(asked) == slurmctld.STANDBY_STOPS
    up.add(HEAD)
    slurmctld.apply_bundle(there_is, known)
    machine.active.pop("slurmctld.service")
    slurmctld.apply_bundle(there_is, known)
    assert machine.calls.count(asked) == slurmctld.STANDBY_STOPS + 1, (
        "after a start that worked it may ask again"
    )
