"""The head: the key is made once, a bundle is applied, or refused and taken back; the status says which."""

import json
import re
from pathlib import Path

import pytest
from fake_machine import CONF, FakeMachine, FakeStore, Killed, a_bundle, a_small_plan

from gpucluster import artifacts
from gpucluster.node import bundles, controller, head_role
from gpucluster.node.known import Known
from gpucluster.plan import names

GOOD = a_bundle(a_small_plan())


def a_head(root: Path, **change: object) -> FakeMachine:
    head = FakeMachine(root, role=names.ROLE_HEAD, address="10.42.0.10", **change)  # type: ignore[arg-type]
    head.store.objects[names.BUNDLE_KEY] = GOOD
    return head


class Agent:
    """The head's loop, a look at a time."""

    def __init__(self, head: FakeMachine) -> None:
        self.head, self.known, self.table, self.last = head, Known(), head_role.BOOT, b""

    def look(self) -> dict[str, object]:
        self.known, done, self.last = head_role.look(self.head.machine(), self.table, self.known, self.last)
        self.table = head_role.FOLLOW if done else self.table
        return json.loads(self.head.store.objects.get(names.STATUS_KEY, b"{}"))

    def offer(self, bundle: bytes) -> dict[str, object]:
        self.head.store.objects[names.BUNDLE_KEY] = bundle
        return self.look()


def a_ready_head(root: Path) -> Agent:
    agent = Agent(a_head(root))
    assert agent.look()["ready"]
    return agent


def verdict(status: dict[str, object]) -> tuple[object, object, object]:
    return status["ready"], status["bundle"], status["applied"]


def test_it_comes_up_in_order_and_says_so(tmp_path):
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


def test_on_the_head_the_daemons_user_reaches_the_metadata_too(tmp_path):
    head = a_head(tmp_path)
    Agent(head).look()
    assert "meta skuid != { root, slurm }" in head.text(f"{names.AGENT_RUN}/guard.nft")


def test_slurms_files_are_links_through_the_applied_bundle_and_others_stay(tmp_path):
    head = a_head(tmp_path)
    head.put(f"{names.SLURM_ETC}/plugstack.conf", "theirs")
    Agent(head).look()
    link = tmp_path / "etc/slurm/slurm.conf"
    assert str(link.readlink()) == f"{names.BUNDLE_DIR}/slurm/slurm.conf"
    assert head.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf") == CONF
    assert head.text(f"{names.SLURM_ETC}/plugstack.conf") == "theirs"
    assert head.owners == {".munge.key.new": "munge", "slurmctld": "slurm", "slurm": "slurm"}


def test_the_key_is_made_once(tmp_path):
    head = a_head(tmp_path / "a")
    Agent(head).look()
    key = (tmp_path / "a/etc/munge/munge.key").read_bytes()
    assert (len(key), head.store.value) == (128, key)
    again = a_head(tmp_path / "b", store=head.store)
    Agent(again).look()
    assert (tmp_path / "b/etc/munge/munge.key").read_bytes() == key


def test_of_two_heads_that_race_both_take_the_first_key(tmp_path):
    store = FakeStore(objects={names.BUNDLE_KEY: GOOD})
    first, second = a_head(tmp_path / "a", store=store), a_head(tmp_path / "b", store=store)
    real, raced = store.secret, []

    def secret(arn: str) -> bytes | None:
        value = real(arn)
        if value is None and not raced:
            raced.append(second)
            Agent(second).look()  # the other one comes between our look and our offer
        return value

    store.secret = secret  # type: ignore[method-assign]
    Agent(first).look()
    keys = {(tmp_path / side / "etc/munge/munge.key").read_bytes() for side in "ab"}
    assert keys == {store.value}


def test_nothing_new_does_nothing_and_publishes_nothing(tmp_path):
    agent = a_ready_head(tmp_path)
    before, starts = agent.head.snapshot(), dict(agent.head.active)
    for _ in range(3):
        agent.look()
    assert (agent.head.snapshot(), agent.head.active) == (before, starts)
    assert agent.head.store.puts == [names.STATUS_KEY]
    assert ("scontrol", "reconfigure") not in agent.head.calls


def test_changed_slurm_files_are_reconfigured_and_the_daemon_is_left_alone(tmp_path):
    agent = a_ready_head(tmp_path)
    new = a_bundle(a_small_plan(), conf=CONF + "PrologFlags=Alloc\n")
    assert verdict(agent.offer(new)) == (True, artifacts.digest(new), artifacts.digest(new))
    assert agent.head.calls.count(("scontrol", "reconfigure")) == 1
    assert (agent.head.active["slurmctld.service"], agent.head.active["gpucluster-elastic.service"]) == (1, 1)


def test_a_changed_plan_restarts_the_daemon_and_leaves_slurm_alone(tmp_path):
    agent = a_ready_head(tmp_path)
    assert agent.offer(a_bundle(a_small_plan(gpus=8)))["ready"]
    assert ("scontrol", "reconfigure") not in agent.head.calls
    assert (agent.head.active["slurmctld.service"], agent.head.active["gpucluster-elastic.service"]) == (1, 2)


def test_a_file_that_the_new_bundle_lacks_loses_its_link(tmp_path):
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
            "slurmctld refuses the files: it says nothing",
        ),
        (GOOD[:-20], "the bundle [0-9a-f]{12} is not whole: .*"),
    ],
    ids=["the parser refuses it", "slurmctld refuses it", "it is not whole"],
)
def test_a_bad_bundle_leaves_the_last_good_one_running(tmp_path, bad, reason):
    agent = a_ready_head(tmp_path)
    for _ in range(3):  # at once, and at every later look
        status = agent.offer(bad)
        assert (status["ready"], status["applied"]) == (False, artifacts.digest(GOOD))
        assert re.fullmatch(f"the offered bundle is not applied: {reason}", str(status["detail"]))
    assert agent.head.text(f"{names.BUNDLE_DIR}/slurm/slurm.conf") == CONF
    assert agent.head.calls.count(("scontrol", "reconfigure")) <= 2, "there and back, once"
    good = a_bundle(a_small_plan(), conf=CONF + "PrologFlags=Alloc\n")
    assert agent.offer(good)["ready"], "and the next good one is taken"


def test_a_head_that_boots_onto_a_bad_bundle_runs_the_last_good_one(tmp_path):
    agent = a_ready_head(tmp_path)
    agent.head.boot("boot-2")
    agent.head.store.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan(), conf="Bogus=1\n")
    status = Agent(agent.head).look()
    assert (status["ready"], status["applied"]) == (False, artifacts.digest(GOOD))
    assert agent.head.active.keys() == {"munge.service", "slurmctld.service", "gpucluster-elastic.service"}


def test_a_first_bundle_that_is_bad_is_said_and_the_next_one_helps(tmp_path):
    head = a_head(tmp_path)
    agent = Agent(head)
    status = agent.offer(a_bundle(a_small_plan(), conf="Bogus=1\n"))
    assert (status["ready"], status["applied"]) == (False, "")
    assert status["detail"] == "slurm: Slurm's parser refuses slurm.conf: unrecognized key: Bogus"
    assert agent.offer(GOOD)["ready"]


def test_no_bundle_is_waited_for_then_said_and_still_waited_for(tmp_path):
    head = a_head(tmp_path)
    del head.store.objects[names.BUNDLE_KEY]
    agent = Agent(head)
    status = agent.look()
    assert (status["ready"], status["detail"]) == (False, "bundle: s3://bkt/bundle.tar.gz: NoSuchKey")
    assert agent.offer(GOOD)["ready"]


def test_only_the_applied_and_the_offered_tree_are_kept(tmp_path):
    agent = a_ready_head(tmp_path)
    for gpus in range(3, 7):
        agent.offer(a_bundle(a_small_plan(gpus=gpus)))
    trees = [p.name for p in (tmp_path / bundles.TREES.lstrip("/")).iterdir()]
    assert trees == [bundles.applied(agent.head.machine())]


def test_killed_after_any_effect_it_reaches_the_same_end(tmp_path):
    key = b"K" * 128
    whole = a_head(tmp_path / "whole", store=FakeStore(value=key))
    Agent(whole).look()
    reached = 0
    for turn in range(len(whole.calls) + 6):
        head = a_head(tmp_path / str(turn), store=FakeStore(value=key), kill_after=turn)
        try:
            Agent(head).look()
        except Killed:
            reached += 1
        head.kill_after = None
        assert Agent(head).look()["ready"]
        assert head.snapshot() == whole.snapshot(), f"killed after {turn} effects"
    assert reached > len(head_role.BOOT)


def test_killed_while_a_bad_bundle_is_tried_it_still_goes_back(tmp_path):
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
def test_a_value_is_found_as_slurm_finds_it(text, values):
    assert list(controller.conf_values(text, "StateSaveLocation")) == values
