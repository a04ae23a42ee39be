"""A login machine: from power on to sshd, without a slurmd; then it follows the bundle. And the second head."""

from dataclasses import replace

import pytest
from fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.node import controller, login_role, mounts, standby_role
from gpucluster.node.known import Known
from gpucluster.node.machine import NotYetError
from gpucluster.plan import codec, names
from gpucluster.plan.model import Efs, Login, Mount, Slurm, Standby, User, there

PLAN = replace(
    a_small_plan(),
    login=Login(machine="m7i.xlarge", zone="us-east-1a", names=("trial-login-1", "trial-login-2")),
    users=(User(name="vision", uid=5001, keys=("ssh-ed25519 AAA v",)),),
)
STANDBY = Standby(machine="m7i.large", zone="us-east-1b", address="10.42.32.10", state="/home")


def a_machine(tmp_path, plan=PLAN, role=names.ROLE_LOGIN, name="trial-login-2"):
    machine = FakeMachine(tmp_path, role=role)
    told = {"cluster": "trial", "region": "us-east-1", "bucket": "bkt", "key": names.BUNDLE_KEY, "role": role}
    machine.put(names.USER_DATA_FILE, codec.dumps({**told, "name": name}))
    machine.store.objects[names.BUNDLE_KEY] = a_bundle(plan)
    machine.store.value = b"k" * 64
    machine.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    return machine


def look(machine, table=login_role.BOOT, known=None):
    return login_role.look(machine.machine(), table, known or Known())


def test_it_comes_up_with_its_name_people_slurms_commands_and_sshd_last(tmp_path):
    machine = a_machine(tmp_path)
    known, done = look(machine)
    assert done
    assert list(machine.active) == ["munge.service", "sackd.service", "ssh.service"]
    assert machine.hostname == "trial-login-2"
    assert "10.42.0.10 head" in machine.text("/etc/hosts")
    assert machine.text(login_role.SACKD) == 'SACKD_OPTIONS="--conf-server 10.42.0.10:6817"\n'
    assert ("ssh-keygen", "-A") in machine.calls
    assert machine.store.puts == []  # its role writes nothing
    before, starts = machine.snapshot(), dict(machine.active)
    machine.put(login_role.HOST_KEY, "key")
    assert look(machine, login_role.FOLLOW, known) == (known, True)
    assert {k: v for k, v in machine.snapshot().items() if k in before} == before
    assert machine.active == starts


def test_sshd_takes_keys_only_and_only_those_that_root_wrote(tmp_path):
    machine = a_machine(tmp_path)
    look(machine)
    rules = machine.text(login_role.SSHD).splitlines()
    for rule in (
        "PermitRootLogin no",
        "PasswordAuthentication no",
        "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u",
    ):
        assert rule in rules


def test_a_new_bundles_people_come_without_a_restart_of_sshd(tmp_path):
    machine = a_machine(tmp_path)
    known, _ = look(machine)
    machine.put(login_role.HOST_KEY, "key")
    more = replace(PLAN, users=(*PLAN.users, User(name="speech", uid=5002, keys=("ssh-ed25519 BBB s",))))
    machine.store.objects[names.BUNDLE_KEY] = a_bundle(more)
    _, done = look(machine, login_role.FOLLOW, known)
    assert done
    assert machine.text(f"{names.KEY_FOLDER}/speech") == "ssh-ed25519 BBB s\n"
    assert machine.active["ssh.service"] == 1


def test_before_sackd_slurms_files_are_linked_from_the_bundle(tmp_path):
    machine = a_machine(tmp_path, replace(PLAN, slurm=Slurm(version="22.05")))
    look(machine)
    assert (tmp_path / "etc/slurm/slurm.conf").is_symlink()
    assert "sackd.service" not in machine.active


def test_a_name_that_the_plan_has_not_stops_it(tmp_path, caplog):
    _, done = look(a_machine(tmp_path, name="somebody"))
    assert not done
    assert "name is 'somebody', the plan's are trial-login-1, trial-login-2" in caplog.text


def test_it_waits_for_the_key_that_the_head_makes(tmp_path):
    machine = a_machine(tmp_path)
    machine.store.value = None
    _, done = look(machine)
    assert not done
    assert "ssh.service" not in machine.active


@pytest.mark.parametrize("role", [names.ROLE_LOGIN, names.ROLE_STANDBY])
def test_everybody_knows_both_heads(tmp_path, role):
    plan = replace(
        PLAN, storage=(Mount(path="/home", efs=Efs()),), head=replace(there(PLAN.head), standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, role)
    table = login_role.BOOT if role == names.ROLE_LOGIN else standby_role.BOOT
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = machine.active["gpucluster-elastic.service"] = 1
    _, done = look(machine, tuple(row for row in table if row[0] != "mounts"))
    assert done
    hosts = machine.text("/etc/hosts")
    assert "10.42.0.10 head" in hosts
    assert "10.42.32.10 trial-standby" in hosts
    if role == names.ROLE_STANDBY:
        assert machine.hostname == "trial-standby"
        assert "munge.service" in machine.active
        assert ("mount", "--bind", "/home/.gpucluster/slurmctld", "/var/spool/slurmctld") in machine.calls
    else:
        assert "10.42.0.10:6817,10.42.32.10:6817" in machine.text(login_role.SACKD)


@pytest.mark.parametrize("why", ["the head's listens", "it is too long away"])
def test_the_second_daemon_lets_the_heads_be_first_for_a_while(tmp_path, why):
    """It took the lease at its boot, and slurmctld acted on the one head, the daemon on the other."""
    plan = replace(
        PLAN, storage=(Mount(path="/home", efs=Efs()),), head=replace(there(PLAN.head), standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, names.ROLE_STANDBY)
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = 1
    known, _ = look(machine, tuple(row for row in standby_role.BOOT if row[0] not in ("mounts", "elastic")))
    asked: list[tuple[str, int]] = []
    away = replace(machine.machine(), listening=lambda *place: asked.append(place) or False)
    with pytest.raises(NotYetError, match="does not listen"):
        standby_role.elastic(away, known)
    assert f"{controller.DAEMON}.service" not in machine.active
    assert asked == [("10.42.0.10", names.REGISTRATION_PORT)]
    if why == "the head's listens":
        standby_role.elastic(replace(away, listening=lambda *_: True), known)
    else:
        machine.clock += standby_role.HEAD_FIRST_S
        standby_role.elastic(away, known)
    assert machine.active[f"{controller.DAEMON}.service"] == 1


HEAD, SECOND = "10.42.0.10", "10.42.32.10"
SLURM_PORT, DAEMONS_PORT = 6817, names.REGISTRATION_PORT


@pytest.fixture
def second(tmp_path):
    """The second head, all of it up, and what it knows."""
    plan = replace(
        PLAN, storage=(Mount(path="/home", efs=Efs()),), head=replace(there(PLAN.head), standby=STANDBY)
    )
    machine = a_machine(tmp_path, plan, names.ROLE_STANDBY)
    machine.address = SECOND
    machine.put(mounts.TABLE, "1 1 0:1 / /home rw - nfs4 x rw\n")
    machine.active["slurmctld.service"] = machine.active["gpucluster-elastic.service"] = 1
    known, done = look(
        machine, tuple(row for row in standby_role.BOOT if row[0] not in ("mounts", "elastic"))
    )
    assert done
    standby_role.elastic(replace(machine.machine(), listening=lambda *_: False), known)
    return machine, known


def starts(machine):
    return machine.active[f"{controller.DAEMON}.service"]


@pytest.mark.parametrize(
    ("listens", "gives"),
    [
        ({(SECOND, DAEMONS_PORT), (HEAD, SLURM_PORT)}, True),
        ({(SECOND, DAEMONS_PORT)}, False),  # the head is away
        ({(HEAD, SLURM_PORT), (HEAD, DAEMONS_PORT)}, False),  # the head's daemon acts
    ],
    ids=["the head is back", "the head is away", "all is as it was"],
)
def test_the_second_daemon_gives_way_when_the_heads_slurmctld_acts_again(second, listens, gives):
    machine, known = second
    before = starts(machine)
    there_is = replace(machine.machine(), listening=lambda *place: place in listens)
    standby_role.elastic(there_is, known)
    assert starts(machine) == before + gives


def test_it_gives_way_to_a_daemon_that_does_not_come_only_now_and_then(second):
    machine, known = second
    before = starts(machine)
    always = replace(machine.machine(), listening=lambda *place: place != (HEAD, DAEMONS_PORT))
    for _ in range(3):
        standby_role.elastic(always, known)
        machine.clock += 60.0
    assert starts(machine) == before + 1
    machine.clock += standby_role.AGAIN_S
    standby_role.elastic(always, known)
    assert starts(machine) == before + 2


def test_the_second_head_is_the_first_to_be_asked_from_itself(second):
    machine, known = second
    others = "ClusterName=trial\n{}SlurmUser=slurm\n# SlurmctldHost=trial-standby(no)\n"
    hosts = [f"SlurmctldHost=trial-head({HEAD})\n", f"SlurmctldHost=trial-standby({SECOND})\n"]
    (known.bundle.tree / controller.CONF).write_text(others.format("".join(hosts)))
    standby_role.near(machine.machine(), known)
    assert machine.text(names.NEAR_CONF) == others.format("".join(reversed(hosts)))


def test_the_seconds_slurmctld_once_ended_lets_the_heads_start_first(second):
    """On a busy machine the head's took 10 s: the second's was the primary again, and old state met new."""
    machine, known = second
    heads: set[str] = set()
    there_is = replace(machine.machine(), listening=lambda host, _: host in {SECOND, *heads})
    for away_s, comes in ((standby_role.RELIEVED_S, False), (5.0, True)):
        machine.active.pop("slurmctld.service", None)
        with pytest.raises(NotYetError, match="starting its own"):
            standby_role.backup(there_is, known)
        machine.clock += away_s
        heads |= {HEAD} if comes else set()
        standby_role.backup(there_is, known)
        assert "slurmctld.service" in machine.active


@pytest.mark.parametrize(
    ("role", "acts"), [(names.ROLE_HEAD, True), (names.ROLE_HEAD, False), (names.ROLE_STANDBY, True)]
)
def test_a_head_that_comes_back_has_the_other_save_all_and_end_before_it_starts(second, role, acts):
    """Asked by slurmctld itself it hands over after 29 s, unsaved: "Old state possible"."""
    machine, known = second
    machine.active.pop("slurmctld.service")
    machine.calls.clear()
    known = replace(known, identity=replace(known.identity, role=role, address=HEAD))
    left = [acts, acts, acts]  # it takes a moment
    up = lambda host, _: host == HEAD or (bool(left) and left.pop())  # noqa: E731
    controller.controller(replace(machine.machine(), listening=up), known)
    asked, begun = ("scontrol", "shutdown", "slurmctld"), ("systemctl", "start", "slurmctld.service")
    assert (asked in machine.calls) == (role == names.ROLE_HEAD and acts)
    assert machine.calls.index(begun) > (machine.calls.index(asked) if asked in machine.calls else -1)
    if asked in machine.calls:
        assert left == []


def test_a_head_that_does_not_come_up_leaves_the_seconds_slurmctld_alone_from_then_on(second):
    """Each try ended it again, and the cluster had no controller for as long as the head's did not start."""
    machine, known = second
    machine.active.pop("slurmctld.service")
    machine.calls.clear()
    known = replace(known, identity=replace(known.identity, role=names.ROLE_HEAD, address=HEAD))
    asked, up = ("scontrol", "shutdown", "slurmctld"), {SECOND}
    there_is = replace(machine.machine(), listening=lambda host, _: host in up)
    for _ in range(controller.RELIEFS + 2):
        with pytest.raises(NotYetError, match="does not answer"):
            controller.controller(there_is, known)
        machine.active.pop("slurmctld.service")  # it died
    assert machine.calls.count(asked) == controller.RELIEFS
    up.add(HEAD)
    controller.controller(there_is, known)
    machine.active.pop("slurmctld.service")
    controller.controller(there_is, known)
    assert machine.calls.count(asked) == controller.RELIEFS + 1, "after a start that worked it may ask again"
