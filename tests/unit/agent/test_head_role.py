"""The head: the munge key, applied and refused bundles, the published status."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import CONF, FakeMachine, FakeServices, Killed, a_bundle, a_small_plan

from gpucluster import artifacts
from gpucluster.agent.boot import bundles, cluster_identity, munge_key, slurmctld
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.machine import Machine, StepError
from gpucluster.agent.roles import head as head_role
from gpucluster.agent.roles import standby as standby_role
from gpucluster.plan import names
from gpucluster.plan.model import Accounting, Leaf, LocalDatabase, SiteReservation
from gpucluster.plan.slurm_identity import CLUSTER_NAME
from gpucluster.slurm.observed_switches import dumps

GOOD = a_bundle(a_small_plan())


def a_head(root: Path, **change: object) -> FakeMachine:
    head = FakeMachine(root, role=names.ROLE_HEAD, address="10.42.0.10", **change)  # type: ignore[arg-type]
    head.services.objects[names.BUNDLE_KEY] = GOOD
    return head


class Agent:
    """Run one round of the head's loop."""

    def __init__(self, head: FakeMachine) -> None:
        self.head, self.known, self.table, self.last = head, BootState(), head_role.BOOT, b""

    def look(self) -> dict[str, object]:
        self.known, done, self.last = head_role.run_once(
            self.head.machine(), self.table, self.known, self.last
        )
        self.table = head_role.FOLLOW if done else self.table
        return json.loads(self.head.services.objects.get(names.STATUS_KEY, b"{}"))

    def offer(self, bundle: bytes) -> dict[str, object]:
        self.head.services.objects[names.BUNDLE_KEY] = bundle
        return self.look()


def a_ready_head(root: Path) -> Agent:
    agent = Agent(a_head(root))
    assert agent.look()["ready"]
    return agent


def verdict(status: dict[str, object]) -> tuple[object, object, object]:
    return status["ready"], status["bundle"], status["applied"]


def test_head_boots_in_order_and_publishes_its_status(tmp_path):
    head = a_head(tmp_path)
    status = Agent(head).look()
    assert verdict(status) == (True, artifacts.digest(GOOD), artifacts.digest(GOOD))
    assert [s["name"] for s in status["steps"]] == [name for name, _ in head_role.BOOT]  # type: ignore[index,attr-defined]
    started = [
        argv[2] for argv in head.calls if argv[:2] in (("systemctl", "start"), ("systemctl", "restart"))
    ]
    assert started == ["munge.service", "slurmctld.service", "gpucluster-elastic.service"]
    assert head.hostname == "head"
    assert "10.42.0.21 h200-1a-1" in head.text("/etc/hosts")


def test_user_of_the_daemon_reaches_the_metadata_service_on_the_head(tmp_path):
    head = a_head(tmp_path)
    Agent(head).look()
    assert "meta skuid != { root, slurm }" in head.text(f"{names.AGENT_RUN}/guard.nft")


def test_slurm_files_are_links_and_other_files_stay(tmp_path):
    head = a_head(tmp_path)
    head.put(f"{names.SLURM_ETC}/plugstack.conf", "theirs")
    Agent(head).look()
    link = tmp_path / "etc/slurm/slurm.conf"
    assert str(link.readlink()) == f"{names.BUNDLE_DIR}/slurm/slurm.conf"
    assert head.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf") == CONF
    assert head.text(f"{names.SLURM_ETC}/plugstack.conf") == "theirs"
    assert head.owners == {".munge.key.new": "munge", "slurmctld": "slurm", "slurm": "slurm"}


def test_munge_key_is_created_once(tmp_path):
    head = a_head(tmp_path / "a")
    Agent(head).look()
    key = (tmp_path / "a/etc/munge/munge.key").read_bytes()
    assert (len(key), head.services.value) == (128, key)
    again = a_head(tmp_path / "b", services=head.services)
    Agent(again).look()
    assert (tmp_path / "b/etc/munge/munge.key").read_bytes() == key


def test_foreign_key_in_the_secret_is_found_and_the_heads_key_is_restored(tmp_path):
    """V2: the running machines talk to each other, and the next one that boots cannot."""
    head = a_head(tmp_path)
    Agent(head).look()
    key = head.services.value
    assert munge_key.compare(head.machine()).same
    writes = len(head.services.tokens)
    assert munge_key.restore(head.machine()).same
    assert len(head.services.tokens) == writes, "nothing is written while it is the same"
    head.services.value = b"x" * 128
    assert not munge_key.compare(head.machine()).same
    assert munge_key.restore(head.machine()).same
    assert head.services.value == key


def test_agent_may_start_again_only_if_the_machine_keeps_its_key(tmp_path):
    """V4: with a foreign secret, each remedy that restarts the agent ended the head's talk with its nodes."""
    head = a_head(tmp_path)
    assert munge_key.keeps_own(head.machine()), "before the first key there is none to lose"
    Agent(head).look()
    assert munge_key.keeps_own(head.machine())
    head.services.value = b"x" * 128
    assert not munge_key.keeps_own(head.machine())
    (tmp_path / "etc/munge/munge.key").unlink()
    assert munge_key.keeps_own(head.machine()), "a machine without a key needs that of the secret"


def test_secret_without_a_value_has_another_key(tmp_path):
    head = a_head(tmp_path)
    Agent(head).look()
    head.services.value = None
    assert not munge_key.compare(head.machine()).same


def test_machine_without_a_key_compares_nothing(tmp_path):
    head = a_head(tmp_path)
    with pytest.raises(StepError, match=r"bindings\.json cannot be read"):
        munge_key.compare(head.machine())
    Agent(head).look()
    (tmp_path / "etc/munge/munge.key").unlink()
    with pytest.raises(StepError, match=r"munge\.key is missing"):
        munge_key.restore(head.machine())


def test_two_concurrent_heads_use_the_first_key(tmp_path):
    store = FakeServices(objects={names.BUNDLE_KEY: GOOD})
    first, second = a_head(tmp_path / "a", services=store), a_head(tmp_path / "b", services=store)
    real, raced = store.get_secret, []

    def secret(arn: str) -> bytes | None:
        value = real(arn)
        if value is None and not raced:
            raced.append(second)
            Agent(second).look()  # the other one comes between our look and our offer
        return value

    store.get_secret = secret  # type: ignore[method-assign]
    Agent(first).look()
    keys = {(tmp_path / side / "etc/munge/munge.key").read_bytes() for side in "ab"}
    assert keys == {store.value}


def test_unchanged_bundle_changes_and_publishes_nothing(tmp_path):
    agent = a_ready_head(tmp_path)
    before, starts = agent.head.snapshot(), dict(agent.head.active)
    for _ in range(3):
        agent.look()
    assert (agent.head.snapshot(), agent.head.active) == (before, starts)
    assert agent.head.services.puts == [names.STATUS_KEY]
    assert ("scontrol", "reconfigure") not in agent.head.calls


def test_changed_slurm_files_cause_reconfigure_only(tmp_path):
    agent = a_ready_head(tmp_path)
    new = a_bundle(a_small_plan(), conf=CONF + "PrologFlags=Alloc\n")
    assert verdict(agent.offer(new)) == (True, artifacts.digest(new), artifacts.digest(new))
    assert agent.head.calls.count(("scontrol", "reconfigure")) == 1
    assert (agent.head.active["slurmctld.service"], agent.head.active["gpucluster-elastic.service"]) == (1, 1)


def _head_with_topology(tmp_path: Path) -> "Agent":
    agent = a_ready_head(tmp_path)
    plan = a_small_plan()
    (span,) = plan.pools[0].slots
    leaf = Leaf(name="h200-1a", slots=(span,))
    text = f"SwitchName=h200-1a Nodes={span.hostlist}\n"
    bundle = a_bundle(replace(plan, leaves=(leaf,)), more={"slurm/topology.conf": text})
    assert agent.offer(bundle)["ready"]
    return agent


def test_switches_that_the_daemon_has_seen_divide_the_topology_with_one_reconfigure(tmp_path):
    agent = _head_with_topology(tmp_path)
    before = agent.head.calls.count(("scontrol", "reconfigure"))
    agent.head.put(names.SEEN_TOPOLOGY, dumps({"h200-1a-1": ("nn-aaaaaaaa",), "h200-1a-2": ("nn-bbbbbbbb",)}))
    assert agent.look()["ready"]
    assert "SwitchName=h200-1a-aaaaaaaa Nodes=h200-1a-1\n" in agent.head.text(names.DIVIDED_TOPOLOGY)
    assert str((tmp_path / "etc/slurm/topology.conf").readlink()) == names.DIVIDED_TOPOLOGY
    agent.look()
    assert agent.head.calls.count(("scontrol", "reconfigure")) == before + 1
    assert agent.head.active["slurmctld.service"] == 1


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"h200-1a-1": ["nn-x Nodes=evil"]}', "\x00", '{"h200-1a-1": ["nn-aaaaaaaa"]}']
)
def test_wrong_file_of_the_daemon_and_a_single_switch_change_nothing(tmp_path, text):
    agent = _head_with_topology(tmp_path)
    before = agent.head.calls.count(("scontrol", "reconfigure"))
    agent.head.put(names.SEEN_TOPOLOGY, text)
    assert agent.look()["ready"]
    assert agent.head.calls.count(("scontrol", "reconfigure")) == before
    assert str((tmp_path / "etc/slurm/topology.conf").readlink()) == f"{names.BUNDLE_DIR}/slurm/topology.conf"


def test_changed_plan_restarts_the_daemon_only(tmp_path):
    agent = a_ready_head(tmp_path)
    assert agent.offer(a_bundle(a_small_plan(always_on=1)))["ready"]
    assert ("scontrol", "reconfigure") not in agent.head.calls
    assert (agent.head.active["slurmctld.service"], agent.head.active["gpucluster-elastic.service"]) == (1, 2)


@pytest.mark.parametrize("folder", [names.SPOOL, f"{names.SPOOL}/new", "/run/gpucluster"])
def test_removed_folder_of_the_daemon_is_made_again(tmp_path, folder):
    """A removed spool ended the daemon for good: systemd did not start it (226/NAMESPACE), and nothing made the folder."""
    agent = a_ready_head(tmp_path)
    shutil.rmtree(tmp_path / folder.lstrip("/"))
    assert agent.look()["ready"]
    assert (tmp_path / folder.lstrip("/")).is_dir()
    assert (agent.head.active["slurmctld.service"], agent.head.active["gpucluster-elastic.service"]) == (1, 2)
    agent.look()
    assert agent.head.active["gpucluster-elastic.service"] == 2


def test_daemon_that_does_not_run_is_started_in_the_next_round(tmp_path):
    """`why` says so of a stopped daemon."""
    agent = a_ready_head(tmp_path)
    del agent.head.active["gpucluster-elastic.service"]
    assert agent.look()["ready"]
    assert agent.head.active["gpucluster-elastic.service"] == 1


def test_link_to_a_removed_file_is_removed(tmp_path):
    agent = a_ready_head(tmp_path)
    agent.offer(a_bundle(a_small_plan(), more={"slurm/topology.conf": "x"}))
    assert (tmp_path / "etc/slurm/topology.conf").is_symlink()
    agent.offer(GOOD)
    assert not (tmp_path / "etc/slurm/topology.conf").is_symlink()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            a_bundle(a_small_plan(), conf="Bogus=1\n"),
            "Slurm's parser refuses slurm.conf: unrecognized key: Bogus",
        ),
        (
            a_bundle(a_small_plan(), conf=CONF + "Nodes=nosuch\n"),
            "slurmctld refuses the files: its log is empty",
        ),
        (GOOD[:-20], "the bundle [0-9a-f]{12} is damaged: .*"),
    ],
    ids=["the parser refuses it", "slurmctld refuses it", "it is not whole"],
)
def test_after_a_bad_bundle_the_last_good_one_runs(tmp_path, bad, reason):
    agent = a_ready_head(tmp_path)
    for _ in range(3):  # at once, and at every later look
        status = agent.offer(bad)
        assert verdict(status) == (False, artifacts.digest(bad), artifacts.digest(GOOD))
        assert re.fullmatch(f"the new bundle is not applied: {reason}", str(status["detail"]))
        assert re.fullmatch(reason, str(status["refused"]))
    assert agent.head.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf") == CONF
    assert agent.head.calls.count(("scontrol", "reconfigure")) <= 2, "there and back, once"
    good = a_bundle(a_small_plan(), conf=CONF + "PrologFlags=Alloc\n")
    assert agent.offer(good)["ready"], "and the next good one is taken"


def test_head_that_boots_with_a_bad_bundle_runs_the_last_good_one(tmp_path):
    agent = a_ready_head(tmp_path)
    agent.head.boot("boot-2")
    agent.head.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan(), conf="Bogus=1\n")
    status = Agent(agent.head).look()
    assert (status["ready"], status["applied"]) == (False, artifacts.digest(GOOD))
    assert agent.head.active.keys() == {"munge.service", "slurmctld.service", "gpucluster-elastic.service"}


def test_bad_first_bundle_is_reported_and_the_next_one_is_applied(tmp_path):
    head = a_head(tmp_path)
    agent = Agent(head)
    status = agent.offer(a_bundle(a_small_plan(), conf="Bogus=1\n"))
    assert (status["ready"], status["applied"]) == (False, "")
    assert status["detail"] == "slurm: Slurm's parser refuses slurm.conf: unrecognized key: Bogus"
    assert status["refused"] == "Slurm's parser refuses slurm.conf: unrecognized key: Bogus"
    assert agent.offer(GOOD)["ready"]


def test_damaged_first_bundle_is_reported_as_refused(tmp_path):
    """`status --wait` waited to its time limit for a bundle that the head cannot apply."""
    agent, damaged = Agent(a_head(tmp_path)), GOOD[:-20]
    status = agent.offer(damaged)
    assert verdict(status) == (False, artifacts.digest(damaged), "")
    assert re.fullmatch("the bundle [0-9a-f]{12} is damaged: .*", str(status["refused"]))
    assert status["detail"] == f"bundle: {status['refused']}"
    assert agent.offer(GOOD)["ready"]


def test_same_bundle_as_before_a_damaged_one_is_applied_again(tmp_path):
    """S3 answers `304 Not Modified` for it, so the agent fetches no new object."""
    agent = a_ready_head(tmp_path)
    assert agent.offer(GOOD[:-20])["refused"]
    status = agent.offer(GOOD)
    assert verdict(status) == (True, artifacts.digest(GOOD), artifacts.digest(GOOD))
    assert status["refused"] == ""


def test_missing_bundle_is_reported_and_waited_for(tmp_path):
    head = a_head(tmp_path)
    del head.services.objects[names.BUNDLE_KEY]
    agent = Agent(head)
    status = agent.look()
    assert (status["ready"], status["detail"]) == (False, "bundle: s3://bkt/bundle.tar.gz: NoSuchKey")
    assert agent.offer(GOOD)["ready"]


def test_only_the_applied_and_the_newest_tree_stay(tmp_path):
    agent = a_ready_head(tmp_path)
    for count in range(1, 5):
        agent.offer(a_bundle(a_small_plan(always_on=count)))
    trees = [p.name for p in (tmp_path / bundles.TREES.lstrip("/")).iterdir()]
    assert trees == [bundles.applied(agent.head.machine())]


LOCAL = Accounting(database=LocalDatabase(buffer_pool_mib=128), keep_s=86400)
RECORDED = a_bundle(replace(a_small_plan(), slurm=replace(a_small_plan().slurm, accounting=LOCAL)))


def test_head_without_storage_of_its_state_refuses_another_database(tmp_path):
    """Its state is on the root volume, and has a number, too."""
    agent = a_ready_head(tmp_path)
    agent.head.put(CLUSTER_NAME, "trial|7\n")
    assert "CLUSTER ID MISMATCH" in str(agent.offer(RECORDED)["refused"])


@pytest.mark.parametrize("role", [head_role, standby_role])
def test_state_that_a_boot_mounts_is_compared_when_it_is_there(tmp_path, role):
    """The comparison came before the mount, so a head that booted with another database found no state to refuse."""
    agent = a_ready_head(tmp_path)

    def bind(machine: Machine, state: BootState) -> BootState:
        agent.head.put(CLUSTER_NAME, "trial|7\n")
        return state

    agent.head.services.objects[names.BUNDLE_KEY] = RECORDED
    steps = [bind if name == "state" else step for name, step in role.AFTER_BUNDLE]
    machine = agent.head.machine()
    state = slurmctld.fetch_bundle(machine, agent.known)
    for step in steps:
        state = step(machine, state) if step in (bind, cluster_identity.check) else state
    assert "CLUSTER ID MISMATCH" in state.refused


def test_head_killed_after_any_effect_reaches_the_same_state(tmp_path):
    key = b"K" * 128
    whole = a_head(tmp_path / "whole", services=FakeServices(value=key))
    Agent(whole).look()
    reached = 0
    for turn in range(len(whole.calls) + 6):
        head = a_head(tmp_path / str(turn), services=FakeServices(value=key), kill_after=turn)
        try:
            Agent(head).look()
        except Killed:
            reached += 1
        head.kill_after = None
        assert Agent(head).look()["ready"]
        assert head.snapshot() == whole.snapshot(), f"killed after {turn} effects"
    assert reached >= len(head_role.BOOT) - 4, "without accounting and a state four steps have no effect"


def test_head_killed_during_a_bad_bundle_returns_to_the_last_good_one(tmp_path):
    bad = a_bundle(a_small_plan(), conf=CONF + "Nodes=nosuch\n")
    for turn in range(12):
        agent = a_ready_head(tmp_path / str(turn))
        agent.head.kill_after = turn
        try:
            agent.offer(bad)
        except Killed:
            agent = Agent(agent.head)
        agent.head.kill_after = None
        status = agent.look()
        assert (status["ready"], status["applied"]) == (False, artifacts.digest(GOOD)), f"killed after {turn}"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("StateSaveLocation=/a\n", ["/a"]),
        ("  statesavelocation = /a # why\n", ["/a"]),
        ("#StateSaveLocation=/a\n", []),
        ("XStateSaveLocation=/a\n", []),
    ],
)
def test_conf_values_are_read_as_slurm_reads_them(text, values):
    assert list(slurmctld.conf_values(text, "StateSaveLocation")) == values


def test_refused_reservation_is_told_and_the_head_stays_ready(tmp_path):
    plan = a_small_plan()
    course = SiteReservation(
        name="course", nodes="h200-1a-[1-2]", starts_at=4_000_000_000, duration_s=60, users=("ada",)
    )
    agent = a_ready_head(tmp_path)
    head = agent.head
    head.refuses["scontrol create"] = "Requested nodes are busy"
    status = agent.offer(a_bundle(replace(plan, slurm=replace(plan.slurm, reservations=(course,)))))
    assert status["ready"]
    assert status["detail"] == "the reservation gpucluster-course is refused: Requested nodes are busy"
    created = [call for call in head.calls if call[:2] == ("scontrol", "create")]
    assert {"ReservationName=gpucluster-course", "Nodes=h200-1a-[1-2]", "Users=ada"} <= {*created[0]}


def test_bundle_without_reservations_is_compared_once(tmp_path):
    """Before, slurmctld was asked in each round for reservations that no plan has."""
    show = ("scontrol", "show", "reservations", "--json")
    agent = a_ready_head(tmp_path)
    assert agent.head.calls.count(show) == 1
    assert [agent.look()["ready"] for _ in range(3)] == [True] * 3
    assert agent.head.calls.count(show) == 1
    left = SiteReservation(
        name="course", nodes="h200-1a-1", starts_at=4_000_000_000, duration_s=60, users=("ada",)
    )
    plan = a_small_plan()
    agent.offer(a_bundle(replace(plan, slurm=replace(plan.slurm, reservations=(left,)))))
    agent.look()
    assert agent.head.calls.count(show) == 3, "with a reservation in each round"
    agent.offer(GOOD)
    agent.look()
    assert agent.head.calls.count(show) == 4, "once more, to delete what the bundle of before had"
