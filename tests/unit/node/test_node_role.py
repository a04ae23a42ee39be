"""A node, from power on to its heartbeat: order, resumption, waiting, failing, ending itself."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeMachine, Killed, a_bundle, a_small_plan, an_answer, answers

from gpucluster.node import node_role, slurmd, state
from gpucluster.node.doorbell import Ring
from gpucluster.node.known import Known
from gpucluster.node.machine import Reply
from gpucluster.node.walk import StoppedError, walk
from gpucluster.plan import names
from gpucluster.plan.model import Mount, Nfs

KEY = b"K" * 128
LATE = 50_000.0  # on the fake clock


def a_node(root: Path, **change: object) -> FakeMachine:
    """A node whose world is ready for it."""
    node = FakeMachine(root, controller=answers(an_answer(hosts=("10.42.0.22 h200-1a-2",))), **change)  # type: ignore[arg-type]
    node.store.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan())
    node.store.value = KEY
    return node


def boot(node: FakeMachine) -> Known:
    return walk(node.machine(), node_role.BOOT, Known(), until=lambda _: LATE)


def phases(node: FakeMachine) -> list[str]:
    return [json.loads(body.decode().removeprefix("MUNGE:"))["phase"] for _, body in node.posts]


class Bell:
    """Rings as told, then ends the loop."""

    def __init__(self, *rings: Ring | None) -> None:
        self.rings, self.answered = list(rings), []

    def wait(self, seconds: float) -> Ring | None:
        if not self.rings:
            raise Killed
        return self.rings.pop(0)

    def answer(self, ring: Ring, text: str) -> None:
        self.answered.append((ring.hostlist, text))


def test_the_guard_comes_first_and_slurmd_last(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    programs = [argv[:3] for argv in node.calls]
    assert programs[0][:2] == ("nft", "-f")
    assert programs[-1] == ("systemctl", "restart", "slurmd.service")


def test_the_steps_stand_in_their_order_in_the_report(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    steps = state.load(node.machine()).steps
    assert [(s.name, s.ok) for s in steps] == [(name, True) for name, _ in node_role.BOOT]


def test_slurmd_is_started_with_b_and_would_come_back_without(tmp_path):
    node = a_node(tmp_path)
    seen: list[str] = []
    real = node._outcome

    def spy(argv, stdin, env):
        if argv[-1] == "slurmd.service":
            seen.append(node.text(slurmd.OPTIONS))
        return real(argv, stdin, env)

    node._outcome = spy
    boot(node)
    assert seen == ['SLURMD_OPTIONS="-N h200-1a-1 -b --conf-server 10.42.0.10:6817"\n']
    assert node.text(slurmd.OPTIONS) == 'SLURMD_OPTIONS="-N h200-1a-1 --conf-server 10.42.0.10:6817"\n'


def test_the_key_is_munges_alone_and_stands_nowhere_else(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    key = tmp_path / names.MUNGE_KEY.lstrip("/")
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (KEY, 0o400)
    assert node.owners[".munge.key.new"] == "munge"
    assert not any(KEY.decode() in word for argv in node.calls for word in argv)
    assert [name for name, body in node.snapshot().items() if KEY in body] == [names.MUNGE_KEY.lstrip("/")]
    assert KEY.decode() not in node.text(names.AGENT_STATE)


def test_the_name_the_head_and_the_peers_resolve(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    assert node.hostname == "h200-1a-1"
    assert node.text("/etc/hosts").splitlines() == [
        "127.0.0.1 localhost",
        "# gpucluster: begin",
        "10.42.0.10 head",
        "10.42.0.21 h200-1a-1",
        "10.42.0.22 h200-1a-2",
        "# gpucluster: end",
    ]


def test_a_second_run_changes_nothing(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    before, starts = node.snapshot(), dict(node.active)
    boot(node)
    assert (node.snapshot(), node.active) == (before, starts)


def test_killed_after_any_effect_it_reaches_the_same_end(tmp_path):
    whole = a_node(tmp_path / "whole")
    boot(whole)
    effects = (
        len(whole.calls) + len(whole.posts) + 5
    )  # and the metadata and store calls: more kills than effects
    reached = set()
    for turn in range(effects):
        node = a_node(tmp_path / str(turn), kill_after=turn)
        try:
            boot(node)
        except Killed:
            reached.add(turn)
        node.kill_after = None
        boot(node)
        assert node.snapshot() == whole.snapshot(), f"killed after {turn} effects"
        assert node.active.keys() == whole.active.keys()
    assert len(reached) >= len(node_role.BOOT)


def test_after_a_reboot_slurmd_starts_with_b_again_and_the_name_is_kept(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    node.boot("boot-2")
    kept = state.load(node.machine())
    assert (kept.life, kept.node, kept.steps) == (0, "h200-1a-1", ())
    boot(node)
    assert node.active["slurmd.service"] == 1


def test_it_waits_for_the_bundle_the_key_and_the_controller(tmp_path):
    node = a_node(tmp_path)
    node.controller = answers(
        ConnectionRefusedError(111, "refused"), Reply(503, b'{"error": "later"}'), an_answer(life=7)
    )
    node.store.missing_for[names.BUNDLE_KEY] = 3
    node.store.value = None
    bring, real = iter([None, None, KEY]), node.store.secret
    node.store.secret = lambda arn: real(arn) or next(bring)  # type: ignore[method-assign]
    boot(node)
    assert state.load(node.machine()).life == 7
    assert len(node.pauses) == 3 + 2 + 2


def test_user_data_that_is_not_there_yet_or_half_is_waited_for(tmp_path):
    node = a_node(tmp_path)
    node.put(names.USER_DATA_FILE, '{"clus')
    with pytest.raises(
        StoppedError, match=r"^machine: cloud-init has not written /etc/gpucluster/machine.json yet$"
    ):
        walk(node.machine(), node_role.BOOT, Known(), until=lambda _: node.clock)
    assert node.commands("nft"), "but the guard is up"


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (
            lambda n: n.put(names.USER_DATA_FILE, '{"cluster": "c", "region": "r"}'),
            "machine: /etc/gpucluster/machine.json: no bucket, key, role",
        ),
        (
            lambda n: n.store.objects.update({names.BUNDLE_KEY: b"no archive"}),
            r"bundle: the bundle [0-9a-f]{12} is not whole: Not a gzipped file \(b'no'\)",
        ),
        (
            lambda n: setattr(n.store, "value", b"short"),
            "key: the cluster's secret has 5 bytes, munge takes 32 to 1024",
        ),
        (
            lambda n: setattr(n, "controller", answers(Reply(403, b'{"error": "not\nmine\x1b[31m"}'))),
            r'name: the controller does not know this machine: {"error": "not mine\?\[31m"}',
        ),
        (
            lambda n: (n.root / "dev/nvidia1").unlink(),
            r"devices: 1 of 2 GPUs are there \(/dev/nvidia\*\)",
        ),
        (
            lambda n: n.refuses.update({"systemctl restart slurmd": "failed", "journalctl": "fatal: x"}),
            "slurmd: slurmd does not start: it says nothing",
        ),
        (
            lambda n: n.refuses.update({"nft": "Operation not supported"}),
            "guard: nft -f .* ended with code 1: Operation not supported",
        ),
        (
            lambda n: setattr(n, "controller", answers(an_answer(hosts=("10.42.0.9 evil;\n1.1.1.1 head",)))),
            "hostname: this is no line for /etc/hosts: .*",
        ),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(tmp_path, break_it, reason):
    node = a_node(tmp_path)
    break_it(node)
    with pytest.raises(StoppedError, match=f"^{reason}$"):
        boot(node)
    last = state.load(node.machine()).steps[-1]
    assert not last.ok
    assert "\n" not in last.detail


def test_without_a_key_the_failure_is_told_in_plain(tmp_path):
    node = a_node(tmp_path)
    node.store.value = b"short"
    node.controller = answers(Reply(204, b""))
    node_role.live(node.machine(), Bell())  # type: ignore[arg-type]
    path, body = node.posts[0]
    report = json.loads(body)
    assert (path, report["phase"]) == ("/v1/failed", "failed")
    assert report["steps"][-1]["detail"].startswith("the cluster's secret has 5 bytes")
    assert node.calls[-1] == ("systemctl", "poweroff"), "and the machine ends when nobody ends it"


def test_a_guard_that_fails_is_told_although_the_bundle_was_not_fetched(tmp_path):
    node = a_node(tmp_path)
    node.refuses["nft"] = "Operation not supported"
    node.controller = answers(Reply(204, b""))
    node_role.live(node.machine(), Bell())  # type: ignore[arg-type]
    assert json.loads(node.posts[0][1])["steps"][0]["name"] == "guard"
    assert "slurmd.service" not in node.active


def test_with_a_key_the_failure_is_told_by_it(tmp_path):
    node = a_node(tmp_path)
    (tmp_path / "dev/nvidia1").unlink()
    node.controller = answers(an_answer(), an_answer(), OSError("gone"))
    node_role.live(node.machine(), Bell())  # type: ignore[arg-type]
    assert phases(node)[:2] == ["booting", "failed"]


def test_a_new_life_restarts_slurmd_and_is_told_at_once(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.controller = answers(an_answer(life=2))
    node_role.beat(node.machine(), known)
    assert node.active["slurmd.service"] == 2
    lives = [json.loads(body.decode().removeprefix("MUNGE:"))["life"] for _, body in node.posts]
    assert lives == [0, 1, 2]


def test_the_same_life_under_another_name_is_a_new_start(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.controller = answers(an_answer(node="h200-1a-3"))
    node_role.beat(node.machine(), known)
    assert (node.hostname, node.active["slurmd.service"]) == ("h200-1a-3", 2)


def test_the_same_answer_starts_nothing(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    before = node.snapshot()
    for _ in range(3):
        known = node_role.beat(node.machine(), known)
    assert (node.snapshot(), node.active["slurmd.service"]) == (before, 1)


@pytest.mark.parametrize(
    "reply",
    [
        OSError("no route"),
        Reply(503, b""),
        Reply(403, b""),
        Reply(200, b"{}"),
        an_answer(node="stranger-1"),
    ],
)
def test_a_controller_that_answers_ill_changes_nothing_on_a_running_node(tmp_path, reply):
    node = a_node(tmp_path)
    known = boot(node)
    before, node.controller = node.snapshot(), answers(reply)
    assert node_role.beat(node.machine(), known) == known
    assert node.snapshot() == before


def test_the_prolog_gets_its_answer_when_every_name_resolves(tmp_path):
    node = a_node(tmp_path)
    bell = Bell(Ring("h200-1a-[1-3]", ""), None)
    late = [an_answer()] * 5 + [an_answer(hosts=("10.42.0.22 h200-1a-2", "10.42.0.23 h200-1a-3"))]
    node.controller = answers(*late)
    with pytest.raises(Killed):
        node_role.live(node.machine(), bell)  # type: ignore[arg-type]
    assert bell.answered == [("h200-1a-[1-3]", "ok")]
    assert "10.42.0.23 h200-1a-3" in node.text("/etc/hosts")
    assert len(node.posts) <= len(late) + 2, "it stopped asking when all were known"


def test_a_name_that_nobody_tells_holds_no_job_back(tmp_path):
    node = a_node(tmp_path)
    bell = Bell(Ring("stranger-[1-2],[", ""), Ring("stranger-1", ""))
    with pytest.raises(Killed):
        node_role.live(node.machine(), bell)  # type: ignore[arg-type]
    assert [text for _, text in bell.answered] == ["ok", "ok"]
    assert sum(node.pauses) < 5, "the Prolog waits no longer"


def silent(node: FakeMachine, known: Known, *, hours: float) -> bool:
    node.controller = answers(OSError("gone"))
    node.clock += hours * 3600
    return node_role.end_if_due(node.machine(), node_role.beat(node.machine(), known))


def test_without_a_controller_and_without_a_job_it_ends_itself(tmp_path):
    node = a_node(tmp_path)
    assert silent(node, boot(node), hours=1)
    assert node.calls[-1] == ("systemctl", "poweroff")


def test_a_jobs_step_keeps_it_and_its_end_starts_the_wait_anew(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.put("/proc/77/cmdline", "slurmstepd: [12.batch]\0")
    assert silent(node, known, hours=1)  # a title alone is anybody's
    node.put("/proc/77/status", f"Name:\tx\nUid:\t{os.getuid()}\t0\t0\t0\n")
    (tmp_path / "proc/77/exe").symlink_to("/usr/sbin/slurmstepd-wlm")
    assert not silent(node, known, hours=1)
    (tmp_path / "proc/77/cmdline").unlink()
    assert not silent(node, known, hours=0.05)
    assert silent(node, known, hours=0.05)


def test_the_stepd_that_only_keeps_the_cgroup_is_no_job(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.put("/proc/77/cmdline", "/usr/sbin/slurmstepd\0infinity\0")
    assert silent(node, known, hours=1)


def test_an_always_on_slot_never_ends_itself(tmp_path):
    node = a_node(tmp_path)
    node.store.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan(always_on=1))
    assert not silent(node, boot(node), hours=100)


def test_what_a_mount_waits_for_is_told_while_it_waits(tmp_path):
    """A boot once ran into its limit, and all that anybody knew was the step before."""
    storage = (Mount(path="/home", nfs=Nfs(server="10.42.0.10", export="/srv/home", from_head=True)),)
    bundle = a_bundle(replace(a_small_plan(), storage=storage))
    node = FakeMachine(
        tmp_path, controller=answers(an_answer()), refuses={"mount": "access denied by server"}
    )
    node.store.objects[names.BUNDLE_KEY], node.store.value = bundle, b"k" * 64
    with pytest.raises(StoppedError, match="/home cannot be mounted: access denied by server"):
        walk(node.machine(), node_role.BOOT, Known(), until=lambda _: float("inf"))
    assert any("access denied" in body.decode() for _, body in node.posts)
    assert "slurmd.service" not in node.active
