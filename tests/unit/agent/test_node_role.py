"""A node from boot to heartbeat: order of steps, restart, waiting, failure, self-termination."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import FakeMachine, Killed, a_bundle, a_small_plan, an_answer, answers

from gpucluster.agent.boot import boot_state, node_reports, slurmd
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import StepFailedError, run_steps
from gpucluster.agent.machine import Reply
from gpucluster.agent.monitors.prolog_socket import PrologRequest
from gpucluster.agent.roles import node as node_role
from gpucluster.files import shipped
from gpucluster.plan import names
from gpucluster.plan.model import Mount, NfsFromHead

KEY = b"K" * 128
RECORDED = Path(__file__).parents[2] / "recorded/scontrol/24.11/nodes-drained.json"
LATE = 50_000.0  # on the fake clock


def a_node(root: Path, **change: object) -> FakeMachine:
    """Return a node: all services that it needs are ready."""
    node = FakeMachine(root, controller=answers(an_answer(hosts=("10.42.0.22 h200-1a-2",))), **change)  # type: ignore[arg-type]
    node.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan())
    node.services.value = KEY
    return node


def boot(node: FakeMachine) -> BootState:
    return run_steps(node.machine(), node_role.BOOT, BootState(), until=lambda _: LATE)


def phases(node: FakeMachine) -> list[str]:
    return [json.loads(body.decode().removeprefix("MUNGE:"))["phase"] for _, body in node.posts]


class FakePrologSocket:
    """Return these requests, then end the loop."""

    def __init__(self, *requests: PrologRequest | None) -> None:
        self.requests, self.replies = list(requests), []

    def wait(self, seconds: float) -> PrologRequest | None:
        if not self.requests:
            raise Killed
        return self.requests.pop(0)

    def reply(self, request: PrologRequest, text: str) -> None:
        self.replies.append((request.hostlist, text))


def test_guard_is_the_first_step_and_slurmd_the_last(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    programs = [argv[:3] for argv in node.calls]
    assert programs[0][:2] == ("nft", "-f")
    assert programs[-1] == ("systemctl", "restart", "slurmd.service")


def test_report_lists_steps_in_order(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    steps = boot_state.load(node.machine()).steps
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


def test_munge_key_is_readable_only_by_munge(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    key = tmp_path / names.MUNGE_KEY.lstrip("/")
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (KEY, 0o400)
    assert node.owners[".munge.key.new"] == "munge"
    assert not any(KEY.decode() in word for argv in node.calls for word in argv)
    assert [name for name, body in node.snapshot().items() if KEY in body] == [names.MUNGE_KEY.lstrip("/")]
    assert KEY.decode() not in node.text(names.AGENT_STATE)


def test_names_of_node_head_and_peers_resolve(tmp_path):
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


def test_second_run_changes_nothing(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    before, starts = node.snapshot(), dict(node.active)
    boot(node)
    assert (node.snapshot(), node.active) == (before, starts)


def test_head_killed_after_any_effect_reaches_the_same_state(tmp_path):
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
    assert len(reached) >= len(node_role.BOOT) - 8, (
        "the steps of NVSwitch, MIG, MPS, /tmp, environment, health, on-boot and sshd have no effect here"
    )


def test_after_a_reboot_slurmd_starts_with_b_again_and_the_name_is_kept(tmp_path):
    node = a_node(tmp_path)
    boot(node)
    node.boot("boot-2")
    saved = boot_state.load(node.machine())
    assert (saved.incarnation, saved.node, saved.steps) == (0, "h200-1a-1", ())
    boot(node)
    assert node.active["slurmd.service"] == 1


def test_node_waits_for_bundle_key_and_controller(tmp_path):
    node = a_node(tmp_path)
    node.controller = answers(
        ConnectionRefusedError(111, "refused"), Reply(503, b'{"error": "later"}'), an_answer(incarnation=7)
    )
    node.services.missing_for[names.BUNDLE_KEY] = 3
    node.services.value = None
    bring, real = iter([None, None, KEY]), node.services.get_secret
    node.services.get_secret = lambda arn: real(arn) or next(bring)  # type: ignore[method-assign]
    boot(node)
    assert boot_state.load(node.machine()).incarnation == 7
    assert len(node.pauses) == 3 + 2 + 2


def test_user_data_that_is_not_there_yet_or_half_is_waited_for(tmp_path):
    node = a_node(tmp_path)
    node.put(names.USER_DATA_FILE, '{"clus')
    with pytest.raises(
        StepFailedError, match=r"^machine: cloud-init has not written /etc/gpucluster/machine.json yet$"
    ):
        run_steps(node.machine(), node_role.BOOT, BootState(), until=lambda _: node.clock)
    assert node.commands("nft"), "but the guard is up"


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (
            lambda n: n.put(names.USER_DATA_FILE, '{"cluster": "c", "region": "r"}'),
            "machine: /etc/gpucluster/machine.json: the fields bucket, key, role are missing, expected text",
        ),
        (
            lambda n: n.services.objects.update({names.BUNDLE_KEY: b"no archive"}),
            r"bundle: the bundle [0-9a-f]{12} is damaged: it is no whole archive: BadGzipFile",
        ),
        (
            lambda n: setattr(n.services, "value", b"short"),
            "key: the secret of the munge key has 5 bytes, expected 32 to 1024",
        ),
        (
            lambda n: setattr(n, "controller", answers(Reply(403, b'{"error": "not\nmine\x1b[31m"}'))),
            r'name: the controller does not know this machine: {"error": "not mine"}',
        ),
        (
            lambda n: (n.root / "dev/nvidia1").unlink(),
            r"devices: found 1 GPUs as /dev/nvidia\*, expected 2",
        ),
        (
            lambda n: n.refuses.update({"systemctl restart slurmd": "failed", "journalctl": "fatal: x"}),
            "slurmd: slurmd does not start: its log is empty",
        ),
        (
            lambda n: n.refuses.update({"nft": "Operation not supported"}),
            "guard: nft -f .* ended with code 1: Operation not supported",
        ),
        (
            lambda n: setattr(n, "controller", answers(an_answer(hosts=("10.42.0.9 evil;\n1.1.1.1 head",)))),
            "hostname: not a line of /etc/hosts: .*",
        ),
    ],
)
def test_failed_step_is_reported_in_one_line(tmp_path, break_it, reason):
    node = a_node(tmp_path)
    break_it(node)
    with pytest.raises(StepFailedError, match=f"^{reason}$"):
        boot(node)
    last = boot_state.load(node.machine()).steps[-1]
    assert not last.ok
    assert "\n" not in last.detail


def test_failure_without_munge_key_is_posted_to_the_failed_path(tmp_path):
    node = a_node(tmp_path)
    node.services.value = b"short"
    node.controller = answers(Reply(204, b""))
    node_role.run(node.machine(), FakePrologSocket())  # type: ignore[arg-type]
    path, body = node.posts[0]
    report = json.loads(body)
    assert (path, report["phase"]) == ("/v1/failed", "failed")
    assert report["steps"][-1]["detail"].startswith("the secret of the munge key has 5 bytes")
    assert node.calls[-1] == ("systemctl", "poweroff"), "and the machine ends when nobody ends it"


def test_failed_guard_is_reported_without_a_bundle(tmp_path):
    node = a_node(tmp_path)
    node.refuses["nft"] = "Operation not supported"
    node.controller = answers(Reply(204, b""))
    node_role.run(node.machine(), FakePrologSocket())  # type: ignore[arg-type]
    assert json.loads(node.posts[0][1])["steps"][0]["name"] == "guard"
    assert "slurmd.service" not in node.active


def test_failure_with_munge_key_is_a_report_with_phase_failed(tmp_path):
    node = a_node(tmp_path)
    (tmp_path / "dev/nvidia1").unlink()
    node.controller = answers(an_answer(), an_answer(), OSError("gone"))
    node_role.run(node.machine(), FakePrologSocket())  # type: ignore[arg-type]
    assert phases(node)[:2] == ["booting", "failed"]


def test_new_incarnation_restarts_slurmd_and_is_reported_at_once(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.controller = answers(an_answer(incarnation=2))
    node_role.heartbeat(node.machine(), known)
    assert node.active["slurmd.service"] == 2
    incarnations = [json.loads(body.decode().removeprefix("MUNGE:"))["incarnation"] for _, body in node.posts]
    assert incarnations == [0, 1, 2]


def test_same_incarnation_with_another_name_restarts_slurmd(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.controller = answers(an_answer(node="h200-1a-3"))
    node_role.heartbeat(node.machine(), known)
    assert (node.hostname, node.active["slurmd.service"]) == ("h200-1a-3", 2)


def test_same_answer_starts_nothing(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    before = node.snapshot()
    for _ in range(3):
        known = node_role.heartbeat(node.machine(), known)
    assert (node.snapshot(), node.active["slurmd.service"]) == (before, 1)


def test_a_node_boots_in_a_slot_that_a_held_bundle_removes(tmp_path):
    """The node fetches the new bundle, and the head still applies the old one: the boot failed, and the job with it."""
    node = a_node(tmp_path)
    node.controller = answers(an_answer(node="h200-1a-9"))
    known = boot(node)
    assert (node.hostname, node.active["slurmd.service"]) == ("h200-1a-9", 1)
    assert node_role.heartbeat(node.machine(), known) == known
    bad = a_node(tmp_path / "bad")
    bad.controller = answers(an_answer(node='x" -D "'))
    assert "slurmd.service" not in bad.active


@pytest.mark.parametrize(
    "reply",
    [
        OSError("no route"),
        Reply(503, b""),
        Reply(403, b""),
        Reply(200, b"{}"),
        an_answer(node="unknown-1"),
    ],
)
def test_bad_answer_of_the_controller_changes_nothing_on_a_running_node(tmp_path, reply):
    node = a_node(tmp_path)
    known = boot(node)
    before, node.controller = node.snapshot(), answers(reply)
    assert node_role.heartbeat(node.machine(), known) == known
    assert node.snapshot() == before


def test_prolog_gets_its_answer_when_every_name_resolves(tmp_path):
    node = a_node(tmp_path)
    prolog_socket = FakePrologSocket(PrologRequest("h200-1a-[1-3]", ""), None)
    late = [an_answer()] * 5 + [an_answer(hosts=("10.42.0.22 h200-1a-2", "10.42.0.23 h200-1a-3"))]
    node.controller = answers(*late)
    with pytest.raises(Killed):
        node_role.run(node.machine(), prolog_socket)  # type: ignore[arg-type]
    assert prolog_socket.replies == [("h200-1a-[1-3]", "ok")]
    assert "10.42.0.23 h200-1a-3" in node.text("/etc/hosts")
    assert len(node.posts) <= len(late) + 2, "it stopped asking when all were known"


@pytest.mark.parametrize(
    ("what", "restarts", "answer", "told"),
    [
        ("its first start", 0, None, "ok"),
        ("two runs began", 5, Reply(200, b'{"begun":2}'), "ok 2"),
        ("an older daemon", 5, Reply(404, b""), "ok"),
        ("no daemon answers", 5, OSError("gone"), "ok"),
        ("not an answer", 5, Reply(200, b'{"begun":"2; reboot"}'), "ok"),
    ],
)
def test_prolog_of_a_requeued_job_gets_the_runs_that_began(tmp_path, what, restarts, answer, told):
    node = a_node(tmp_path)
    prolog_socket = FakePrologSocket(PrologRequest("h200-1a-1", "", 7, restarts))
    normal, asked = node.controller, []

    def reply(path: str, body: bytes) -> Reply:
        if path != node_reports.RUN_PATH:
            return normal(path, body)
        asked.append(json.loads(body.decode().removeprefix("MUNGE:")))
        if isinstance(answer, Exception):
            raise answer
        return answer

    node.controller = reply
    with pytest.raises(Killed):
        node_role.run(node.machine(), prolog_socket)  # type: ignore[arg-type]
    assert prolog_socket.replies == [("h200-1a-1", told)], what
    assert [(one["job"], one["restarts"]) for one in asked] == ([(7, 5)] if restarts else [])


def test_unresolved_name_does_not_delay_the_job(tmp_path):
    node = a_node(tmp_path)
    prolog_socket = FakePrologSocket(PrologRequest("unknown-[1-2],[", ""), PrologRequest("unknown-1", ""))
    with pytest.raises(Killed):
        node_role.run(node.machine(), prolog_socket)  # type: ignore[arg-type]
    assert [text for _, text in prolog_socket.replies] == ["ok", "ok"]
    assert sum(node.pauses) < 5, "the Prolog waits no longer"


def silent(node: FakeMachine, known: BootState, *, hours: float) -> bool:
    node.controller = answers(OSError("gone"))
    node.clock += hours * 3600
    return node_role.power_off_if_due(node.machine(), node_role.heartbeat(node.machine(), known))


def test_node_without_controller_and_jobs_terminates_itself(tmp_path):
    node = a_node(tmp_path)
    assert silent(node, boot(node), hours=1)
    assert node.calls[-1] == ("systemctl", "poweroff")


def shown(*states: str, name: str = "h200-1a-1") -> str:
    """A recorded node of Slurm 24.11, in these states."""
    recorded = json.loads(RECORDED.read_text())
    node = {**recorded["nodes"][0], "name": name, "state": list(states)}
    return json.dumps({**recorded, "nodes": [node]})


@pytest.mark.parametrize(
    ("ends", "answer", "busy", "off"),
    [
        pytest.param(
            True, shown("IDLE", "CLOUD", "POWERING_DOWN"), False, True, id="slurmctld powers it down"
        ),
        pytest.param(True, shown("IDLE", "CLOUD", "POWERED_DOWN"), False, True, id="slurmctld shows it off"),
        pytest.param(
            False, shown("IDLE", "CLOUD", "POWERED_DOWN"), False, False, id="the daemon may terminate it"
        ),
        pytest.param(True, shown("IDLE", "CLOUD"), False, False, id="slurmctld shows it up"),
        pytest.param(
            True,
            shown("IDLE", "POWERED_DOWN", name="h200-1a-2"),
            False,
            False,
            id="slurmctld shows another node",
        ),
        pytest.param(True, "", False, False, id="slurmctld gives no answer"),
        pytest.param(True, shown("IDLE", "CLOUD", "POWERING_DOWN"), True, False, id="a job still runs"),
    ],
)
def test_powered_down_node_ends_itself_if_the_daemon_may_not_end_it(
    tmp_path: Path, ends: bool, answer: str, busy: bool, off: bool
) -> None:
    """With no control object an idle node stayed paid without a bound."""
    node = a_node(tmp_path)
    known = boot(node)
    node.answers["scontrol --future show nodes h200-1a-1"] = answer
    if busy:
        node.put("/proc/77/cmdline", "slurmstepd: [12.0]\0")
        node.put("/proc/77/status", f"Name:\tx\nUid:\t{os.getuid()}\t0\t0\t0\n")
        (tmp_path / "proc/77/exe").symlink_to("/usr/sbin/slurmstepd-wlm")
    node.controller = answers(an_answer(ends=ends))
    assert node_role.power_off_if_due(node.machine(), node_role.heartbeat(node.machine(), known)) is off
    assert (("systemctl", "poweroff") in node.calls) is off


@pytest.mark.parametrize(
    ("why", "step", "missing"),
    [
        ("nothing of the job is here", "", (12,)),
        ("only the extern step is here", "slurmstepd: [12.extern]", (12,)),
        ("an ordinary step is here", "slurmstepd: [12.0]", (12,)),
        ("another job's script is here", "slurmstepd: [13.batch]", (12,)),
        ("the script runs", "slurmstepd: [12.batch]", ()),
        ("the script of a het job runs", "slurmstepd: [12+0.batch]", ()),
    ],
)
def test_report_names_the_jobs_without_their_batch_script(tmp_path, why, step, missing):
    node = a_node(tmp_path)
    known = boot(node)
    if step:
        node.put("/proc/77/cmdline", f"{step}\0")
        node.put("/proc/77/status", f"Name:\tx\nUid:\t{os.getuid()}\t0\t0\t0\n")
        (tmp_path / "proc/77/exe").symlink_to("/usr/sbin/slurmstepd-wlm")
    node.controller = answers(an_answer(batch_jobs=(12,)))
    for _ in range(2):
        known = node_role.heartbeat(node.machine(), known)
    sent = [json.loads(body.decode().removeprefix("MUNGE:"))["without_script"] for _, body in node.posts]
    assert (sent[-2], tuple(sent[-1])) == ([], missing), why


def test_job_step_delays_self_termination(tmp_path):
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


def test_stepd_that_only_keeps_the_cgroup_is_not_a_job(tmp_path):
    node = a_node(tmp_path)
    known = boot(node)
    node.put("/proc/77/cmdline", "/usr/sbin/slurmstepd\0infinity\0")
    assert silent(node, known, hours=1)


def test_always_on_node_does_not_terminate_itself(tmp_path):
    node = a_node(tmp_path)
    node.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan(always_on=1))
    assert not silent(node, boot(node), hours=100)


def test_reason_of_a_waiting_mount_is_reported(tmp_path):
    """Regression: a boot reached its time limit, and the report had only the step before."""
    storage = (Mount(path="/home", source=NfsFromHead(server="10.42.0.10", export="/srv/home")),)
    bundle = a_bundle(replace(a_small_plan(), storage=storage))
    node = FakeMachine(
        tmp_path, controller=answers(an_answer()), refuses={"mount": "access denied by server"}
    )
    node.services.objects[names.BUNDLE_KEY], node.services.value = bundle, b"k" * 64
    with pytest.raises(StepFailedError, match="/home cannot be mounted: access denied by server"):
        run_steps(node.machine(), node_role.BOOT, BootState(), until=lambda _: float("inf"))
    assert any("access denied" in body.decode() for _, body in node.posts)
    assert "slurmd.service" not in node.active


# --- NVSwitch --------------------------------------------------------------------------------------
def a_fabric(state: str, status: str, *, gpus: int = 2) -> str:
    """Return a part of the output of `nvidia-smi -q`."""
    block = f"    Fabric\n        State                             : {state}\n        Status                            : {status}\n"
    return "".join(
        f"GPU 00000000:{n}0:00.0\n    Product Name : NVIDIA H200\n{block}    Processes : None\n"
        for n in range(gpus)
    )


class NvswitchNode(FakeMachine):
    """Return a node with an NVSwitch. `reports` are the answers of nvidia-smi, in order; the last one repeats."""

    reports: list[str]
    cuda: list[int]

    def _outcome(self, argv, stdin, env):
        if argv[0] == slurmd.NVIDIA_SMI:
            return 0, self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        if slurmd.CUDA_INIT in argv:
            return (self.cuda.pop(0) if len(self.cuda) > 1 else self.cuda[0]), ""
        return super()._outcome(argv, stdin, env)


def a_node_with_nvswitch(root: Path, *reports: str, cuda: tuple[int, ...] = (0,)) -> NvswitchNode:
    node = NvswitchNode(root, controller=answers(an_answer()))
    plan = a_small_plan()
    pool = replace(plan.pools[0], shape=replace(plan.pools[0].shape, nvswitch=True))
    node.services.objects[names.BUNDLE_KEY] = a_bundle(replace(plan, pools=(pool,)))
    node.services.value, node.reports, node.cuda = KEY, list(reports), list(cuda)
    node.put(slurmd.NVIDIA_SMI, "")
    return node


def test_slurmd_starts_after_fabric_manager_and_cuda_are_ready(tmp_path):
    """Regression: only device files were counted, and the first jobs failed with SYSTEM_NOT_READY."""
    node = a_node_with_nvswitch(
        tmp_path, a_fabric("In Progress", "N/A"), a_fabric("Completed", "Success"), cuda=(2, 0)
    )
    boot(node)
    asked = [argv[0] for argv in node.calls if argv[0] == slurmd.NVIDIA_SMI or slurmd.CUDA_INIT in argv]
    assert len(asked) == 3 + 2, "in progress; then not ready for CUDA; then ready"
    programs = [argv[:3] for argv in node.calls]
    assert programs[-1] == ("systemctl", "restart", "slurmd.service")
    assert len(node.pauses) == 2


def test_started_node_does_not_query_nvswitch_again(tmp_path):
    node = a_node_with_nvswitch(tmp_path, a_fabric("Completed", "Success"))
    state = boot(node)
    before = len(node.commands(slurmd.NVIDIA_SMI))
    node_role.heartbeat(node.machine(), state)
    assert len(node.commands(slurmd.NVIDIA_SMI)) == before


@pytest.mark.parametrize(
    ("report", "cuda", "reason"),
    [
        (a_fabric("In Progress", "N/A"), 0, "State is 'In Progress', expected 'Completed'"),
        (a_fabric("Completed", "Unknown Error"), 0, "Status is 'Unknown Error', expected 'Success'"),
        (a_fabric("N/A", "N/A"), 2, r"cuInit answered 802 \(SYSTEM_NOT_READY\)"),
    ],
)
def test_nvswitch_that_never_gets_ready_fails_the_boot_with_its_state(tmp_path, report, cuda, reason):
    node = a_node_with_nvswitch(tmp_path, report, cuda=(cuda,))
    with pytest.raises(StepFailedError, match=f"^fabric: .*{reason}$"):
        boot(node)
    assert "slurmd.service" not in node.active


def test_gpus_before_hopper_have_no_state_and_cuda_decides(tmp_path):
    boot(a_node_with_nvswitch(tmp_path, a_fabric("N/A", "N/A")))


def test_machine_without_nvswitch_is_not_queried(tmp_path):
    node = a_node(tmp_path)
    node.put(slurmd.NVIDIA_SMI, "")
    boot(node)
    assert not node.commands(slurmd.NVIDIA_SMI)


def test_stand_in_of_the_sandbox_is_in_progress_first(tmp_path):
    script = (shipped("playbooks") / "stand-ins/nvidia-smi").read_text().replace("/run/", f"{tmp_path}/")
    program = tmp_path / "nvidia-smi"
    for gpu in range(2):
        (tmp_path / f"nvidia{gpu}").touch()
    program.write_text(script.replace('DEV = "/dev"', f'DEV = "{tmp_path}"'))
    program.chmod(0o755)
    first, second = (
        subprocess.run([program, "-q"], capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert slurmd.unfinished(first) == "State is 'In Progress', expected 'Completed'"
    assert (slurmd.unfinished(second), second.count("Completed")) == ("", 2)


def test_real_cuda_check_answers_success_without_the_library():
    done = subprocess.run([sys.executable, "-I", "-c", slurmd.CUDA_INIT], check=False)
    assert done.returncode == 0


SHOW = "systemctl show slurmd.service"


@pytest.mark.parametrize(
    ("state", "exited_at", "told"),
    [
        ("active", 900.0, None),
        ("reloading", 900.0, None),
        ("inactive", 940.0, 60.0),
        ("failed", 940.0, 60.0),
        ("activating", 940.0, 60.0),  # systemd starts it again and again
        ("activating", 998.0, None),  # it restarts
    ],
)
def test_report_tells_how_long_slurmd_has_not_run(tmp_path, state, exited_at, told):
    """A stopped slurmd showed only when slurmctld had waited SlurmdTimeout for it."""
    node = a_node(tmp_path)
    booted = boot(node)
    node.clock = 1000.0
    node.answers[SHOW] = f"ActiveState={state}\nActiveExitTimestampMonotonic={int(exited_at * 1e6)}\n"
    node_role.heartbeat(node.machine(), booted)
    report = json.loads(node.posts[-1][1].decode().removeprefix("MUNGE:"))
    assert report["slurmd_down_s"] == told


def test_report_before_slurmd_starts_tells_nothing_of_it(tmp_path):
    node = a_node(tmp_path)
    node.answers[SHOW] = "ActiveState=inactive\nActiveExitTimestampMonotonic=0\n"
    boot(node)
    assert json.loads(node.posts[0][1].decode().removeprefix("MUNGE:"))["slurmd_down_s"] is None
