"""What a machine hears of itself: notices, faults in the kernel's log, jobs' beats, the site's farewell, its last words."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeMachine, a_bundle, a_small_plan, an_answer, answers
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.elastic import registration
from gpucluster.node import beats, interruptions, node_role, register, state, tail
from gpucluster.node.doorbell import Doorbell
from gpucluster.node.kernel_log import MOST, Faults, Lines
from gpucluster.node.known import Known
from gpucluster.node.machine import Heard, Machine, NotYetError, Reply
from gpucluster.node.senses import Senses
from gpucluster.node.walk import walk
from gpucluster.plan import codec, names
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport, Notice, NoticeKind, Step
from gpucluster.plan.model import Farewell

NOON = 1_505_722_920.0  # 2017-09-18T08:22:00Z
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


class Service:
    """A metadata service: what is not there is 404; `hangs` answers nothing."""

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
    return [n for place, read in interruptions.PLACES.items() for n in read(tree.get(place))]


def senses(service: Service, log: Path, rings: Rings) -> Senses:
    return Senses(ask=service, lines=Lines(log), ring=rings, now=lambda: 1000.0)


# --- notices ---------------------------------------------------------------------------------------
def test_a_notice_rings_once_and_stays(tmp_path: Path) -> None:
    service, rings = Service(), Rings()
    s = senses(service, tmp_path / "kmsg", rings)
    s.ask_once()
    assert (s().notices, s().watched, rings.count) == ((), True, 0)
    service.tree[interruptions.SPOT] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    s.ask_once()
    s.ask_once()
    assert s().notices == (Notice(kind=NoticeKind.SPOT, at=NOON, words="terminate"),)
    assert rings.count == 1


def test_a_service_that_does_not_answer_takes_nothing_back(tmp_path: Path) -> None:
    service, rings = Service(), Rings()
    s = senses(service, tmp_path / "kmsg", rings)
    service.hangs = True
    s.ask_once()
    assert not s().watched
    service.hangs = False
    service.tree[interruptions.REBALANCE] = '{"noticeTime": "2017-09-18T08:22:00Z"}'
    s.ask_once()
    service.hangs = True
    s.ask_once()
    assert [n.kind for n in s().notices] == [NoticeKind.REBALANCE]


def test_whatever_a_service_answers_the_thread_listens_on(tmp_path: Path) -> None:
    """A token with a line's end in it ended the thread that waits for notices, and the reports went on saying that it watches."""

    def odd(path: str) -> str | None:
        raise ValueError("Invalid header value b'x\\ny'")

    s = Senses(ask=odd, lines=Lines(tmp_path / "kmsg"), ring=Rings())
    assert not s.outlive("it", s.ask_once)
    s.ask = lambda path: "{}" if path == interruptions.SPOT else None
    assert s.outlive("it", s.ask_once)
    assert [n.kind for n in s().notices] == [NoticeKind.SPOT]


@pytest.mark.parametrize("broken", [interruptions.REBALANCE, interruptions.MAINTENANCE])
def test_a_place_that_does_not_answer_hides_no_spot_notice(tmp_path: Path, broken: str) -> None:
    service, rings = Service(), Rings()
    s = senses(service, tmp_path / "kmsg", rings)
    service.tree[interruptions.SPOT] = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    service.broken = {broken}
    s.ask_once()
    assert ([n.kind for n in s().notices], s().watched, rings.count) == ([NoticeKind.SPOT], False, 1)
    service.broken = set()
    s.ask_once()
    assert (s().watched, rings.count) == (True, 1)


def test_a_long_list_of_maintenance_hides_neither_a_spot_notice_nor_what_is_still_to_come() -> None:
    old = [{"Code": "system-reboot", "State": "completed"}] * 20
    new = [{"Code": f"c{n}", "NotBefore": "18 Sep 2017 08:22:00 GMT"} for n in range(20)]
    tree = {interruptions.SPOT: "{}", interruptions.MAINTENANCE: json.dumps([*old, *new])}
    found = notices_of(tree)
    assert [n.kind for n in found].count(NoticeKind.SPOT) == 1
    assert [n.kind for n in found].count(NoticeKind.MAINTENANCE) == interruptions.MOST


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
    assert [(n.at, n.words) for n in interruptions.of_maintenance(json.dumps(said))] == expected


def test_a_spot_notice_that_cannot_be_read_is_a_notice_all_the_same() -> None:
    for text in ("", "[]", "{", '{"action": {"a": "\\u001b[2J"}, "time": 7}'):
        (notice,) = interruptions.of_spot(text)
        assert (notice.kind, notice.at) == (NoticeKind.SPOT, None)
        assert notice.words.isprintable()


@given(
    st.dictionaries(
        st.sampled_from([interruptions.SPOT, interruptions.REBALANCE, interruptions.MAINTENANCE]), st.text()
    )
)
def test_whatever_the_service_says_it_is_read_or_left_and_bounded(tree: dict[str, str]) -> None:
    assert len(notices_of(tree)) <= interruptions.MOST + 2


# --- the kernel's log ------------------------------------------------------------------------------
def test_faults_are_counted_by_kind_and_device_and_ring_once(tmp_path: Path) -> None:
    log, rings = tmp_path / "kmsg", Rings()
    s = senses(Service(), log, rings)
    s.read_once()
    assert s().faults == ()
    log.write_text(f"[    1.0] {XID}\nnothing\n6,339,5140900,-;{XID}\n{XID.replace('79', '31')}")
    s.read_once()
    assert [(f.xid, f.device, f.count) for f in s().faults] == [(79, "0000:3b:00", 2)]
    with log.open("a") as more:
        more.write("\n")
    s.read_once()
    assert [(f.xid, f.count) for f in s().faults] == [(31, 1), (79, 2)]
    assert rings.count == 2
    with log.open("a") as more:
        more.write(f"{XID}\n")
    s.read_once()
    assert rings.count == 2


def test_what_lies_a_day_apart_is_counted_anew() -> None:
    faults = Faults()
    for at in (0.0, 10.0, 90_000.0):
        faults.take(XID, at)
    assert [f.count for f in faults.all()] == [1]


def test_a_flood_of_kinds_stays_bounded_and_the_report_far_below_its_limit() -> None:
    faults = Faults()
    for number in range(5000):
        faults.take(f"NVRM: Xid (PCI:0000:{number % 99:02}:00): {number}, {'x' * 4000}", 1.0)
    assert len(faults.all()) == MOST
    assert len(codec.dumps(faults.all())) < 30_000


def test_users_bugs_on_every_gpu_do_not_hide_the_one_that_fell_off_the_bus() -> None:
    faults = Faults()
    for device in range(16):
        for number in (13, 31, 43, 45):
            faults.take(f"NVRM: Xid (PCI:0000:{device:02}:00): {number}, pid=1, name=python", 1.0)
    assert faults.take(XID, 2.0)
    for device in range(16):
        faults.take(f"NVRM: Xid (PCI:0001:{device:02}:00): 45, pid=1, name=python", 3.0)
    assert len(faults.all()) == MOST
    assert [(f.xid, f.device) for f in faults.all()][-1] == (79, "0000:3b:00")


def test_a_log_that_never_ends_does_not_hold_back_a_fault(tmp_path: Path) -> None:
    class Endless(Lines):
        def read(self) -> Iterator[str]:
            yield XID
            assert rings.count == 1, "it waits for the end of the log"

    rings = Rings()
    Senses(ask=Service(), lines=Endless(tmp_path / "x"), ring=rings, now=lambda: 1.0).read_once()
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
def test_what_only_looks_like_a_fault_is_none(line: str) -> None:
    faults = Faults()
    faults.take(line, 1.0)
    assert faults.all() == ()


def test_control_characters_of_a_line_are_dropped(tmp_path: Path) -> None:
    faults = Faults()
    faults.take("NVRM: Xid (PCI:0000:3b:00): 13, a\x1b[2Jb", 1.0)
    assert faults.all()[0].text == "a[2Jb"


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(b"x" * 3_000_000)
    lines = Lines(log)
    assert list(lines.read()) == []
    assert len(lines._rest) < 10_000


@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    faults = Faults()
    for line in data.decode(errors="replace").split("\n"):
        faults.take(line, 1.0)
    assert len(faults.all()) <= MOST


def test_dev_null_in_a_container_is_an_end_that_is_slept_at() -> None:
    lines = Lines(Path(os.devnull))
    assert list(lines.read()) == []
    assert lines._ended


# --- beats -----------------------------------------------------------------------------------------
def test_only_plain_files_with_a_jobs_number_count_and_with_their_owner(tmp_path: Path) -> None:
    folder = tmp_path / names.BEATS_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for name in ("17", "08", "x", "1.5", "-3", "99999999999", "18"):
        (folder / name).touch()
    os.utime(folder / "17", (50.0, 50.25))
    (folder / "19").symlink_to("/etc/passwd")
    (folder / "20").mkdir()
    (folder / "18").unlink()
    found = beats.read(FakeMachine(tmp_path).machine())
    assert [(b.job, b.uid, b.at) for b in found] == [(17, os.getuid(), 50.25)]


def test_a_flood_of_files_is_cut_and_the_newest_stay(tmp_path: Path) -> None:
    folder = tmp_path / names.BEATS_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for number in range(1, beats.MOST + 40):
        (folder / str(number)).touch()
        os.utime(folder / str(number), (number, number))
    found = beats.read(FakeMachine(tmp_path).machine())
    assert len(found) == beats.MOST
    assert found[-1].job == beats.MOST + 39


def test_no_folder_is_no_beat(tmp_path: Path) -> None:
    assert beats.read(FakeMachine(tmp_path).machine()) == ()


# --- the report ------------------------------------------------------------------------------------
class Node(FakeMachine):
    """Every file is root's alone but those of `others`: path -> `UID MODE`; what is `hidden` nobody can tell of."""

    others: Mapping[str, str] = {}
    hidden: Sequence[str] = ()

    def _outcome(self, argv: tuple[str, ...], stdin: Any, env: Any) -> tuple[int, str]:
        if argv[0] == "stat":
            way = [path for path in argv[argv.index("--") + 1 :] if path not in self.hidden]
            return 0, "".join(f"{self.others.get(path, '0 755')} {path}\n" for path in way)
        return super()._outcome(argv, stdin, env)


def a_node(root: Path, answer: Reply, *, script: str | None = None) -> Node:
    plan = a_small_plan()
    pool = replace(plan.pools[0], farewell=Farewell(script=script))
    node = Node(root, controller=answers(answer))
    node.store.objects[names.BUNDLE_KEY] = a_bundle(replace(plan, pools=(pool,)))
    node.store.value = b"K" * 128
    return node


def up(node: FakeMachine, heard: Heard = Heard()) -> tuple[Machine, Known]:  # noqa: B008
    machine = replace(node.machine(), heard=lambda: heard, clock=lambda: 5.0)
    return machine, walk(machine, node_role.BOOT, Known(), until=lambda _: 50_000.0)


def reports(node: FakeMachine) -> list[NodeReport]:
    return [codec.loads(NodeReport, body.decode().removeprefix("MUNGE:")) for _, body in node.posts]


def told(node: FakeMachine) -> list[tuple[str, ...]]:
    return node.commands("systemd-run")


def leaving(words: str, **more: object) -> Reply:
    answer = NodeAnswer(
        node="h200-1a-1",
        life=1,
        controller="10.42.0.10:6817",
        heartbeat_s=2.0,
        leaving=words,
        **more,  # type: ignore[arg-type]
    )
    return Reply(200, codec.dumps(answer).encode())


SPOT = Heard(notices=(Notice(kind=NoticeKind.SPOT, at=NOON),), watched=True)


def test_a_report_carries_what_was_heard_and_the_nodes_own_clock(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer())
    machine, known = up(node, SPOT)
    node_role.beat(machine, known)
    last = reports(node)[-1]
    assert (last.notices, last.watched, last.clock) == (SPOT.notices, True, 5.0)


def test_the_largest_report_stays_far_below_what_registration_takes(tmp_path: Path) -> None:
    faults = Faults()
    for number in range(MOST):
        faults.take(f"NVRM: Xid (PCI:0000:{number:02}:00): {number}, {'x' * 4000}", 1.0)
    notices = tuple(
        Notice(kind=NoticeKind.MAINTENANCE, at=NOON + n, words="x" * interruptions.WORDS)
        for n in range(interruptions.MOST)
    )
    folder = tmp_path / names.BEATS_DIR.lstrip("/")
    folder.mkdir(parents=True)
    for number in range(beats.MOST):
        (folder / str(9_999_999_000 + number)).touch()
    node = a_node(tmp_path, an_answer())
    machine, known = up(node, Heard(notices=notices, faults=faults.all()))
    steps = tuple(Step(name=f"s{n}", ok=False, seconds=1.0, detail="é" * 300) for n in range(12))
    state.change(machine, steps=steps)
    node._outcome = lambda argv, _i, _e: (0, ("é" * 400 + "\n") * 90)  # type: ignore[method-assign,assignment]
    assert (
        len(codec.dumps(register.report(machine, known, NodePhase.FAILED))) * 4 / 3
        < registration.MAX_BODY - 4000
    )


def test_the_farewell_runs_once_with_kind_and_end(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer(), script="/opt/site/bye")
    machine, known = up(node, SPOT)
    for _ in range(3):
        known = node_role.beat(machine, known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "spot", "2017-09-18T08:22:00Z")]


def test_the_farewell_runs_while_no_controller_answers(tmp_path: Path) -> None:
    node = a_node(tmp_path, an_answer(), script="/opt/site/bye")
    machine, known = up(node)
    node.controller = lambda _path, _body: Reply(503, b"")
    node_role.beat(replace(machine, heard=lambda: SPOT), known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "spot", "2017-09-18T08:22:00Z")]


def test_a_trouble_that_only_the_controller_knows_runs_it_too(tmp_path: Path) -> None:
    node = a_node(tmp_path, leaving("fault"), script="/opt/site/bye")
    machine, known = up(node)
    node_role.beat(machine, known)
    assert [argv[-3:] for argv in told(node)] == [("/opt/site/bye", "fault", "")]


@pytest.mark.parametrize("words", ["", "--help x", "spot ; reboot", "SPOT", "spot -5", "spot 99999999999999"])
def test_what_no_controller_of_ours_says_runs_nothing(tmp_path: Path, words: str) -> None:
    node = a_node(tmp_path, leaving(words), script="/opt/site/bye")
    machine, known = up(node)
    node_role.beat(machine, known)
    assert told(node) == []


def test_without_a_program_nothing_runs(tmp_path: Path) -> None:
    node = a_node(tmp_path, leaving("spot 5"))
    machine, known = up(node, SPOT)
    node_role.beat(machine, known)
    assert told(node) == []


def test_a_program_that_is_missing_is_a_failed_step_and_the_heart_beats_on(tmp_path: Path) -> None:
    node = a_node(tmp_path, leaving("spot 5"), script="/opt/site/bye")
    node.refuses["systemd-run"] = "Failed to find executable /opt/site/bye"
    machine, known = up(node)
    node_role.beat(machine, known)
    node_role.beat(machine, known)
    (step,) = [s for s in reports(node)[-1].steps if s.name == "farewell"]
    assert not step.ok
    assert "Failed to find executable" in step.detail
    assert len(told(node)) == 1


NOT_ROOTS = {
    "another user's file": ({"/opt/site/bye": "1000 755"}, (), "others than root may change /opt/site/bye"),
    "a file that a group may write": ({"/opt/site/bye": "0 775"}, (), "others than root may change /opt/site/bye"),
    "a folder that everybody may write": ({"/opt/site": "0 1777"}, (), "others than root may change /opt/site"),
    "a file system that does not answer": ({}, ("/opt/site/bye", "/opt/site", "/opt", "/"), "nobody knows whose it is"),
}  # fmt: skip


@pytest.mark.parametrize("row", NOT_ROOTS)
def test_a_program_that_others_than_root_may_change_is_not_run_and_told(tmp_path: Path, row: str) -> None:
    """A path on a shared file system made whoever can write there root on every node that is taken back."""
    node = a_node(tmp_path, leaving("spot 5"), script="/opt/site/bye")
    node.others, node.hidden, words = NOT_ROOTS[row]
    machine, known = up(node)
    node_role.beat(machine, known)
    node_role.beat(machine, known)
    assert told(node) == []
    (step,) = [s for s in reports(node)[-1].steps if s.name == "farewell"]
    assert (step.ok, step.detail) == (False, f"/opt/site/bye: not run: {words}")


def test_a_farewell_is_bounded_in_time_even_if_it_hears_no_signal(tmp_path: Path) -> None:
    node = a_node(tmp_path, leaving("spot 5"), script="/opt/site/bye")
    machine, known = up(node)
    node_role.beat(machine, known)
    (argv,) = told(node)
    assert {"--property=RuntimeMaxSec=100", "--property=TimeoutStopSec=5"} <= set(argv)


def test_last_words_are_told_of_a_failure_and_while_slurm_waits_and_else_not(tmp_path: Path) -> None:
    node = a_node(tmp_path, leaving("", awaited=True))
    node.refuses["journalctl"] = ""
    machine, _ = up(node)
    real = node._outcome
    node._outcome = lambda argv, i, e: (
        (0, "one\n\x1b[2Jtwo\n") if argv[0] == "journalctl" else real(argv, i, e)
    )  # type: ignore[method-assign,assignment]
    kept = state.load(machine)
    assert tail.of(machine, kept, NodePhase.UP, awaited=False) == ""
    assert tail.of(machine, kept, NodePhase.UP, awaited=True) == "one\n?[2Jtwo"
    assert tail.of(machine, kept, NodePhase.FAILED, awaited=False) == "one\n?[2Jtwo"
    failed = replace(kept, steps=(Step(name="devices", ok=False, seconds=1.0),))
    assert tail.of(machine, failed, NodePhase.BOOTING, awaited=False)


@pytest.mark.loopback
def test_a_nudge_ends_a_wait_and_many_are_one(tmp_path: Path) -> None:
    with Doorbell(tmp_path / "bell") as bell:
        for _ in range(5000):
            bell.nudge()
        assert bell.wait(30.0) is None
        assert bell.wait(0.0) is None
