"""Monitors of a node: notices, GPU faults, job heartbeats, the termination script, the log tail."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_machine import FakeMachine, a_bundle, a_small_plan, an_answer, answers
from support.waiting import BOUND_S

from gpucluster.agent.boot import boot_state, node_reports
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import run_steps
from gpucluster.agent.machine import HealthReport, Machine, NotYetError, Reply
from gpucluster.agent.monitors import interruptions, job_heartbeats
from gpucluster.agent.monitors.kernel_log import MAX_FAULTS, FaultTable, KernelLog
from gpucluster.agent.monitors.prolog_socket import PrologSocket
from gpucluster.agent.monitors.watcher import HealthWatcher
from gpucluster.agent.roles import node as node_role
from gpucluster.elastic import registration
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport, Notice, NoticeKind, Step
from gpucluster.plan.model import Termination

NOON = 1_505_722_920.0  # 2017-09-18T08:22:00Z
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


class Service:
    """A stand-in of the metadata service. A missing path answers 404, a path in `hangs` does not answer."""

    def __init__(self) -> None:
        self.tree: dict[str, str] = {}
        self.hangs = False
        self.broken: set[str] = set()

    def __call__(self, path: str) -> str | None:
        if self.hangs or path in self.broken:
            raise NotYetError("the metadata service does not answer: timed out")
        return self.tree.get(path)


class Rings:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def notices_of(tree: dict[str, str]) -> list[Notice]:
    return [n for place, read in interruptions.PARSERS.items() for n in read(tree.get(place))]


def watcher(service: Service, log: Path, rings: Rings) -> HealthWatcher:
    return HealthWatcher(query=service, kernel_log=KernelLog(log), wake=rings, now=lambda: 1000.0)


# --- notices ---------------------------------------------------------------------------------------
def test_notice_wakes_once_and_stays(tmp_path: Path) -> None:
    service, rings = Service(), Rings()
    s = watcher(service, tmp_path / "kmsg", rings)
    s.poll_metadata()
    assert (s().notices, s().watched, rings.count) == ((), True, 0)
    service.tree[interruptions.SPOT] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    s.poll_metadata()
    s.poll_metadata()
    assert s().notices == (Notice(kind=NoticeKind.SPOT, at=NOON, words="terminate"),)
    assert rings.count == 1


def test_notices_stay_while_the_metadata_service_is_down(tmp_path: Path) -> None:
    service, rings = Service(), Rings()
    s = watcher(service, tmp_path / "kmsg", rings)
    service.hangs = True
    s.poll_metadata()
    assert not s().watched
    service.hangs = False
    service.tree[interruptions.REBALANCE] = '{"noticeTime": "2017-09-18T08:22:00Z"}'
    s.poll_metadata()
    service.hangs = True
    s.poll_metadata()
    assert [n.kind for n in s().notices] == [NoticeKind.REBALANCE]


def test_thread_continues_after_any_answer(tmp_path: Path) -> None:
    """Regression: a token with a newline ended the thread, but reports still had `watched`."""

    def odd(path: str) -> str | None:
        raise ValueError("Invalid header value b'x\\ny'")

    s = HealthWatcher(query=odd, kernel_log=KernelLog(tmp_path / "kmsg"), wake=Rings())
    assert not s.run_safely("it", s.poll_metadata)
    s.query = lambda path: "{}" if path == interruptions.SPOT else None
    assert s.run_safely("it", s.poll_metadata)
    assert [n.kind for n in s().notices] == [NoticeKind.SPOT]


@pytest.mark.parametrize("broken", [interruptions.REBALANCE, interruptions.MAINTENANCE])
def test_failed_path_hides_no_spot_notice(tmp_path: Path, broken: str) -> None:
    service, rings = Service(), Rings()
    s = watcher(service, tmp_path / "kmsg", rings)
    service.tree[interruptions.SPOT] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    service.broken = {broken}
    s.poll_metadata()
    assert ([n.kind for n in s().notices], s().watched, rings.count) == ([NoticeKind.SPOT], False, 1)
    service.broken = set()
    s.poll_metadata()
    assert (s().watched, rings.count) == (True, 1)


def test_long_maintenance_list_hides_no_spot_notice_and_no_future_event() -> None:
    old = [{"Code": "system-reboot", "State": "completed"}] * 20
    new = [{"Code": f"c{n}", "NotBefore": "18 Sep 2017 08:22:00 GMT"} for n in range(20)]
    tree = {interruptions.SPOT: "{}", interruptions.MAINTENANCE: json.dumps([*old, *new])}
    found = notices_of(tree)
    assert [n.kind for n in found].count(NoticeKind.SPOT) == 1
    assert [n.kind for n in found].count(NoticeKind.MAINTENANCE) == interruptions.MAX_EVENTS


MAINTENANCE_ROWS = {
    "a reboot that is planned": (
        [
            {
                "NotBefore": "18 Sep 2017 08:22:00 GMT",
                "Code": "system-reboot",
                "Description": "x",
                "State": "active",
            }
        ],
        [(NOON, "system-reboot")],
    ),
    "what is over stays in the list for a week": (
        [{"NotBefore": "x", "Code": "instance-stop", "Description": "[Completed] x", "State": "active"}],
        [],
    ),
    "a state that says so": (
        [{"Code": "system-reboot", "State": "completed"}, {"Code": "x", "State": "canceled"}],
        [],
    ),
    "a time that nobody can read is a notice without one": (
        [{"NotBefore": "soon", "Code": "instance-retirement"}],
        [(None, "instance-retirement")],
    ),
    "no list": ({"Code": "x"}, []),
    "a list of nonsense": ([1, None, [], {}], []),
}


@pytest.mark.parametrize("row", MAINTENANCE_ROWS)
def test_scheduled_maintenance(row: str) -> None:
    said, expected = MAINTENANCE_ROWS[row]
    assert [(n.at, n.words) for n in interruptions.parse_maintenance(json.dumps(said))] == expected


def test_unreadable_spot_notice_is_a_notice() -> None:
    for text in ("", "[]", "{", '{"action": {"a": "\\u001b[2J"}, "time": 7}'):
        (notice,) = interruptions.parse_spot(text)
        assert (notice.kind, notice.at) == (NoticeKind.SPOT, None)
        assert notice.words.isprintable()


@given(
    st.dictionaries(
        st.sampled_from([interruptions.SPOT, interruptions.REBALANCE, interruptions.MAINTENANCE]), st.text()
    )
)
def test_any_metadata_answer_gives_a_bounded_list(tree: dict[str, str]) -> None:
    assert len(notices_of(tree)) <= interruptions.MAX_EVENTS + 2


# --- the kernel's log ------------------------------------------------------------------------------
def test_faults_are_counted_by_xid_and_device_and_wake_once(tmp_path: Path) -> None:
    log, rings = tmp_path / "kmsg", Rings()
    s = watcher(Service(), log, rings)
    s.read_kernel_log()
    assert s().faults == ()
    log.write_text(f"[    1.0] {XID}\nnothing\n6,339,5140900,-;{XID}\n{XID.replace('79', '31')}")
    s.read_kernel_log()
    assert [(f.xid, f.device, f.count) for f in s().faults] == [(79, "0000:3b:00", 2)]
    with log.open("a") as more:
        more.write("\n")
    s.read_kernel_log()
    assert [(f.xid, f.count) for f in s().faults] == [(31, 1), (79, 2)]
    assert rings.count == 2
    with log.open("a") as more:
        more.write(f"{XID}\n")
    s.read_kernel_log()
    assert rings.count == 2


def test_count_restarts_after_a_day() -> None:
    faults = FaultTable()
    for at in (0.0, 10.0, 90_000.0):
        faults.add(XID, at)
    assert [f.count for f in faults.sorted_faults()] == [1]


def test_number_of_faults_is_bounded() -> None:
    faults = FaultTable()
    for number in range(5000):
        faults.add(f"NVRM: Xid (PCI:0000:{number % 99:02}:00): {number}, {'x' * 4000}", 1.0)
    assert len(faults.sorted_faults()) == MAX_FAULTS
    assert len(codec.dumps(faults.sorted_faults())) < 30_000


def test_faults_of_user_programs_do_not_displace_a_hardware_fault() -> None:
    faults = FaultTable()
    for device in range(16):
        for number in (13, 31, 43, 45):
            faults.add(f"NVRM: Xid (PCI:0000:{device:02}:00): {number}, pid=1, name=python", 1.0)
    assert faults.add(XID, 2.0)
    for device in range(16):
        faults.add(f"NVRM: Xid (PCI:0001:{device:02}:00): 45, pid=1, name=python", 3.0)
    assert len(faults.sorted_faults()) == MAX_FAULTS
    assert [(f.xid, f.device) for f in faults.sorted_faults()][-1] == (79, "0000:3b:00")


def test_fault_in_an_endless_log_is_reported_at_once(tmp_path: Path) -> None:
    class Endless(KernelLog):
        def read(self) -> Iterator[str]:
            yield XID
            assert rings.count == 1, "it waits for the end of the log"

    rings = Rings()
    HealthWatcher(
        query=Service(), kernel_log=Endless(tmp_path / "x"), wake=rings, now=lambda: 1.0
    ).read_kernel_log()
    assert rings.count == 1


HOSTILE_LINES = (
    "NVRM: Xid (PCI:../../etc): 79, x",
    "NVRM: Xid (PCI:0000:3b:00): 79999999, x",
    "NVRM: Xid (PCI:): 79",
    "NVRM: Xid 79",
    "Xid (PCI:0000:3b:00): 79",
    f'overlayfs: unrecognized mount option "{XID}" or missing value',  # any user's mount, in a namespace of its own
    f"6,339,5140900,-;tmpfs: Unknown parameter '{XID}'",
    f"6,339,5140900,-;tmpfs: Unknown parameter 'a;{XID}'",
    f"[    1.0] [ 2.0] x {XID}",
    f"6,339,{'9' * 400},-;{XID}",  # a moment that no float holds: the thread ended, and heard no fault any more
)


@pytest.mark.parametrize("line", HOSTILE_LINES)
def test_similar_line_is_no_fault(line: str) -> None:
    faults = FaultTable()
    faults.add(line, 1.0)
    assert faults.sorted_faults() == ()


def test_control_characters_are_removed(tmp_path: Path) -> None:
    faults = FaultTable()
    faults.add("NVRM: Xid (PCI:0000:3b:00): 13, a\x1b[2Jb", 1.0)
    assert faults.sorted_faults()[0].text == "ab"


def test_line_without_end_uses_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(b"x" * 3_000_000)
    lines = KernelLog(log)
    assert list(lines.read()) == []
    assert len(lines._rest) < 10_000


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(data: bytes) -> None:
    faults = FaultTable()
    for line in data.decode(errors="replace").split("\n"):
        faults.add(line, 1.0)
    assert len(faults.sorted_faults()) <= MAX_FAULTS


def test_dev_null_in_a_container_counts_as_end_of_file() -> None:
    lines = KernelLog(Path(os.devnull))
    assert list(lines.read()) == []
    assert lines._ended


# --- beats -----------------------------------------------------------------------------------------
def test_only_plain_files_named_by_job_id_are_heartbeats(tmp_path: Path) -> None:
    folder = tmp_path / names.JOB_HEARTBEAT_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for name in ("17", "08", "x", "1.5", "-3", "99999999999", "18"):
        (folder / name).touch()
    os.utime(folder / "17", (50.0, 50.25))
    (folder / "19").symlink_to("/etc/passwd")
    (folder / "20").mkdir()
    (folder / "18").unlink()
    found = job_heartbeats.read(FakeMachine(tmp_path).machine())
    assert [(b.job, b.uid, b.at) for b in found] == [(17, os.getuid(), 50.25)]


def test_only_the_newest_heartbeat_files_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / names.JOB_HEARTBEAT_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for number in range(1, job_heartbeats.MAX_REPORTED + 40):
        (folder / str(number)).touch()
        os.utime(folder / str(number), (number, number))
    found = job_heartbeats.read(FakeMachine(tmp_path).machine())
    assert len(found) == job_heartbeats.MAX_REPORTED
    assert found[-1].job == job_heartbeats.MAX_REPORTED + 39


def test_missing_folder_means_no_heartbeat(tmp_path: Path) -> None:
    assert job_heartbeats.read(FakeMachine(tmp_path).machine()) == ()


# --- the report ------------------------------------------------------------------------------------
class Node(FakeMachine):
    """All files belong to root, except those of `others`: path -> `UID MODE`. `stat` does not find those in `hidden`."""

    others: Mapping[str, str] = {}
    hidden: Sequence[str] = ()
    target: str = ""  # of the script, if it is a link

    def _outcome(self, argv: tuple[str, ...], stdin: Any, env: Any) -> tuple[int, str]:
        if argv[0] == "readlink":
            return 0, f"{self.target or argv[-1]}\n"
        if argv[0] == "stat":
            way = [path for path in argv[argv.index("--") + 1 :] if path not in self.hidden]
            return 0, "".join(f"{self.others.get(path, '0 755')} {path}\n" for path in way)
        return super()._outcome(argv, stdin, env)


def a_node(root: Path, answer: Reply, *, script: str | None = None) -> Node:
    plan = a_small_plan()
    pool = replace(plan.pools[0], termination=Termination(script=script))
    node = Node(root, controller=answers(answer))
    node.services.objects[names.BUNDLE_KEY] = a_bundle(replace(plan, pools=(pool,)))
    node.services.value = b"K" * 128
    return node


def up(node: FakeMachine, found: HealthReport = HealthReport()) -> tuple[Machine, BootState]:  # noqa: B008
    machine = replace(node.machine(), health=lambda: found, clock=lambda: 5.0)
    return machine, run_steps(machine, node_role.BOOT, BootState(), until=lambda _: 50_000.0)


def reports(node: FakeMachine) -> list[NodeReport]:
    return [codec.loads(NodeReport, body.decode().removeprefix("MUNGE:")) for _, body in node.posts]


def told(node: FakeMachine) -> list[tuple[str, ...]]:
    return node.commands("systemd-run")


def interruption(words: str, **more: object) -> Reply:
    answer = NodeAnswer(
        node="h200-1a-1",
        incarnation=1,
        controller="10.42.0.10:6817",
        heartbeat_s=2.0,
        interruption=words,
        **more,  # type: ignore[arg-type]
    )
    return Reply(200, codec.dumps(answer).encode())


SPOT = HealthReport(notices=(Notice(kind=NoticeKind.SPOT, at=NOON),), watched=True)


def test_report_has_notices_faults_and_clock(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer())
    machine, known = up(node, SPOT)
    node_role.heartbeat(machine, known)
    last = reports(node)[-1]
    assert (last.notices, last.watched, last.clock) == (SPOT.notices, True, 5.0)


def test_largest_report_is_far_below_the_limit_of_registration(tmp_path: Path) -> None:
    faults = FaultTable()
    for number in range(MAX_FAULTS):
        faults.add(f"NVRM: Xid (PCI:0000:{number:02}:00): {number}, {'x' * 4000}", 1.0)
    notices = tuple(
        Notice(kind=NoticeKind.MAINTENANCE, at=NOON + n, words="x" * interruptions.MAX_TEXT)
        for n in range(interruptions.MAX_EVENTS)
    )
    folder = tmp_path / names.JOB_HEARTBEAT_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for number in range(job_heartbeats.MAX_REPORTED):
        (folder / str(9_999_999_000 + number)).touch()
    node = a_node(tmp_path, an_answer())
    machine, known = up(node, HealthReport(notices=notices, faults=faults.sorted_faults()))
    steps = tuple(Step(name=f"s{n}", ok=False, seconds=1.0, detail="é" * 300) for n in range(12))
    boot_state.update(machine, steps=steps)
    node._outcome = lambda argv, _i, _e: (0, ("é" * 400 + "\n") * 90)  # type: ignore[method-assign,assignment]
    assert (
        len(codec.message(node_reports.build(machine, known, NodePhase.FAILED))) * 4 / 3
        < registration.MAX_BODY - 4000
    )


def test_termination_script_runs_once_with_kind_and_end(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer(), script="/opt/site/bye")
    machine, known = up(node, SPOT)
    for _ in range(3):
        known = node_role.heartbeat(machine, known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "spot", "2017-09-18T08:22:00Z")]


def test_termination_script_runs_without_a_controller(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer(), script="/opt/site/bye")
    machine, known = up(node)
    node.controller = lambda _path, _body: Reply(503, b"")
    node_role.heartbeat(replace(machine, health=lambda: SPOT), known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "spot", "2017-09-18T08:22:00Z")]


def test_termination_script_runs_for_an_interruption_from_the_controller(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("fault"), script="/opt/site/bye")
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "fault", "")]


@pytest.mark.parametrize("words", ["", "--help x", "spot ; reboot", "SPOT", "spot -5", "spot 99999999999999"])
def test_invalid_interruption_text_runs_nothing(tmp_path: Path, words: str) -> None:
    node = a_node(tmp_path, interruption(words), script="/opt/site/bye")
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    assert told(node) == []


def test_without_a_script_nothing_runs(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("spot 5"))
    machine, known = up(node, SPOT)
    node_role.heartbeat(machine, known)
    assert told(node) == []


def test_missing_script_is_a_failed_step_and_heartbeats_continue(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("spot 5"), script="/opt/site/bye")
    node.refuses["systemd-run"] = "Failed to find executable /opt/site/bye"
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    node_role.heartbeat(machine, known)
    (step,) = [s for s in reports(node)[-1].steps if s.name == "termination"]
    assert not step.ok
    assert "Failed to find executable" in step.detail
    assert len(told(node)) == 1


NOT_ROOTS = {
    "another user's file": ({"/opt/site/bye": "1000 755"}, (), "other users than root can change /opt/site/bye"),
    "a file that a group may write": ({"/opt/site/bye": "0 775"}, (), "other users than root can change /opt/site/bye"),
    "a folder that everybody may write": ({"/opt/site": "0 1777"}, (), "other users than root can change /opt/site"),
    "a file system that does not answer": ({}, ("/opt/site/bye", "/opt/site", "/opt", "/"), "its owner cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("row", NOT_ROOTS)
def test_script_that_other_users_can_change_is_not_run(tmp_path: Path, row: str) -> None:
    """Otherwise a user who can write to a shared file system would become root on every interrupted node."""
    node = a_node(tmp_path, interruption("spot 5"), script="/opt/site/bye")
    node.others, node.hidden, words = NOT_ROOTS[row]
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    node_role.heartbeat(machine, known)
    assert told(node) == []
    (step,) = [s for s in reports(node)[-1].steps if s.name == "termination"]
    assert (step.ok, step.detail) == (False, f"/opt/site/bye: not run: {words}")


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"/srv/vision/bye": "5001 755"}, "other users than root can change /srv/vision/bye"),
        ({"/srv/vision": "5001 755"}, "other users than root can change /srv/vision"),
        ({"/srv": "0 777"}, "other users than root can change /srv"),
        ({"/opt/site": "0 1777"}, "other users than root can change /opt/site"),
    ],
)
def test_script_behind_a_link_that_other_users_can_change_is_not_run(
    tmp_path: Path, others: dict[str, str], words: str
) -> None:
    """Regression: only the link and the folders above it were checked, not the folders above its target."""
    node = a_node(tmp_path, interruption("spot 5"), script="/opt/site/bye")
    node.target, node.others = "/srv/vision/bye", others
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    node_role.heartbeat(machine, known)
    assert told(node) == []
    (step,) = [s for s in reports(node)[-1].steps if s.name == "termination"]
    assert step.detail == f"/opt/site/bye: not run: {words}"


def test_script_behind_a_link_runs_as_the_file_that_was_checked(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("spot 5"), script="/opt/site/bye")
    node.target = "/srv/site/bye"
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    assert [argv[-3] for argv in told(node)] == ["/srv/site/bye"]


def test_termination_script_has_a_time_limit_and_is_killed(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("spot 5"), script="/opt/site/bye")
    machine, known = up(node)
    node_role.heartbeat(machine, known)
    (argv,) = told(node)
    assert {"--property=RuntimeMaxSec=100", "--property=TimeoutStopSec=5"} <= set(argv)


def test_log_tail_is_sent_only_after_a_failure_or_while_slurm_waits(tmp_path: Path) -> None:
    node = a_node(tmp_path, interruption("", awaited=True))
    node.refuses["journalctl"] = ""
    machine, _ = up(node)
    real = node._outcome
    node._outcome = lambda argv, i, e: (
        (0, "one\n\x1b[2Jtwo\n") if argv[0] == "journalctl" else real(argv, i, e)
    )  # type: ignore[method-assign,assignment]
    saved = boot_state.load(machine)
    assert node_reports.log_tail(machine, saved, NodePhase.UP, awaited=False) == ""
    assert node_reports.log_tail(machine, saved, NodePhase.UP, awaited=True) == "one\ntwo"
    assert node_reports.log_tail(machine, saved, NodePhase.FAILED, awaited=False) == "one\ntwo"
    failed = replace(saved, steps=(Step(name="devices", ok=False, seconds=1.0),))
    assert node_reports.log_tail(machine, failed, NodePhase.BOOTING, awaited=False)


@pytest.mark.loopback
def test_wake_ends_a_wait_and_several_count_once(tmp_path: Path) -> None:
    with PrologSocket(tmp_path / "prolog_socket") as prolog_socket:
        for _ in range(5000):
            prolog_socket.wake()
        assert prolog_socket.wait(BOUND_S) is None
        assert prolog_socket.wait(0.0) is None
