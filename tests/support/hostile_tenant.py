"""What an ordinary user's job tries against another user's job, the agent and the cluster. It prints one JSON line per attempt.

The test copies this file onto a node and runs it inside a job: standard library only. An attempt answers with the refusal that
it met: the name of an errno, or the last line that a program wrote. `got: ...` means that it was not refused. An attempt that
cannot be tried answers something that the test does not expect.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, CLONE_NEWNS, CLONE_NEWUSER = 16, 0x20000, 0x10000000
PIDFD_GETFD = 438
AGENT_RUN, HEARTBEATS, TOKENS = "/run/gpucluster-agent", "/run/gpucluster-heartbeats", "/run/gpucluster-jobs"
METADATA = "http://169.254.169.254/latest"
TRIES, WORKERS = 100, 20
FILL_BYTES, FILL_FILES = 16 << 20, 2000
FORKS = 400

Attempt = Callable[[dict[str, Any]], object]
ATTEMPTS: dict[str, Attempt] = {}


def attempt(name: str) -> Callable[[Attempt], Attempt]:
    """Put the function into the table."""

    def put(function: Attempt) -> Attempt:
        ATTEMPTS[name] = function
        return function

    return put


def answer(function: Callable[[], object]) -> str:
    """Return the errno's name of a refusal, or `got: ...`."""
    try:
        found = function()
    except TimeoutError:
        return "timeout"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except urllib.error.URLError as error:
        reason = error.reason
        return answer(lambda: _raise(reason))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return f"got: {str(found)[:80]!r}"


def _raise(error: object) -> object:
    raise error if isinstance(error, OSError) else OSError(str(error))


def every(*functions: Callable[[], object]) -> str:
    """Return the different answers, joined."""
    return " ".join(sorted({answer(one) for one in functions}))


def called(*argv: str, stdin: str = "", **env: str) -> str:
    """Run a program; return `REFUSED: ` with its last line, or `got: ...` for exit code 0."""
    if shutil.which(argv[0]) is None:
        return "no such program"
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, **env},
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    last = lines[-1].strip()[:160] if lines else ""
    return f"got: {last!r}" if done.returncode == 0 else f"exit {done.returncode}: {last}"


def libc(name: str, *args: object) -> int:
    """Call a function of libc; OSError if it answers -1."""
    ctypes.set_errno(0)
    found = getattr(LIBC, name)(*args)
    if found == -1:
        raise OSError(ctypes.get_errno(), name)
    return int(found)


def in_child(function: Callable[[], object]) -> str:
    """Answer from a process of its own, for calls that change the process."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            os.write(writing, answer(function).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found


def connect(host: str, port: int, *, source: int = 0) -> str:
    with socket.socket() as one:
        one.settimeout(5)
        if source:
            one.bind(("", source))
        one.connect((host, port))
    return "connected"


# --- files ------------------------------------------------------------------------------------


@attempt("read the other job's /tmp, /var/tmp and /dev/shm")
def _tmp(to: dict[str, Any]) -> str:
    return every(*(lambda f=f: Path(f, "secret").read_text() for f in ("/tmp", "/var/tmp", "/dev/shm")))


@attempt("reach the other job's folders through /proc and below BasePath")
def _tmp_by_proc(to: dict[str, Any]) -> str:
    folders = [f"/proc/{to['pid']}/root/{name}" for name in ("tmp", "dev/shm")]
    folders += [f"/proc/{to['pid']}/cwd", f"{to['base_path']}/{to['node']}/{to['job']}"]
    return every(*(lambda f=f: os.listdir(f) for f in folders))


@attempt("put a file where the other job looks for it")
def _plant(to: dict[str, Any]) -> str:
    return answer(lambda: Path(f"/proc/{to['pid']}/root/tmp/planted").write_text("x"))


@attempt("read other users' homes")
def _homes(to: dict[str, Any]) -> str:
    return every(lambda: os.listdir(f"/home/{to['victim']}"), lambda: os.listdir("/root"))


@attempt("read the munge key")
def _munge_key(_: dict[str, Any]) -> str:
    return every(lambda: Path("/etc/munge/munge.key").read_bytes(), lambda: os.listdir("/etc/munge"))


@attempt("read password hashes and host keys")
def _hashes(_: dict[str, Any]) -> str:
    files = ("/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key")
    return every(*(lambda f=f: Path(f).read_text() for f in files))


@attempt("read the other job's script and credential in slurmd's spool")
def _spool(to: dict[str, Any]) -> str:
    spool = Path("/var/spool/slurmd")
    jobs = [p for p in spool.iterdir() if p.name.startswith("job") and str(to["job"]) in p.name]
    if not jobs:
        return "the spool has no folder of the job"
    return every(
        lambda: os.listdir(jobs[0]),
        lambda: (jobs[0] / "slurm_script").read_text(),
        lambda: (spool / "cred_state").read_bytes(),
    )


@attempt("change Slurm's and the agent's files")
def _change_files(to: dict[str, Any]) -> str:
    files = [
        "/run/slurm/conf/slurm.conf",
        "/etc/slurm/slurm.conf",
        "/var/lib/gpucluster/agent.json",
        f"{AGENT_RUN}/state.json",
    ]
    files += [
        f"{AGENT_RUN}/slurmd.env",
        "/opt/gpucluster/bin/prolog",
        "/etc/gpucluster/machine.json",
        "/etc/pam.d/sshd",
    ]
    there = [f for f in files if Path(f).exists()]
    if len(there) < 6:
        return f"only {there} exist"
    found = every(*(lambda f=f: os.open(f, os.O_WRONLY) for f in there))
    folders = (
        AGENT_RUN,
        "/var/spool/slurmd",
        "/var/lib/gpucluster",
        "/opt/gpucluster",
        "/etc/ssh/authorized_keys.d",
        to["base_path"],
    )
    return f"{found} {every(*(lambda f=f: Path(f, 'x').touch() for f in folders))}"


@attempt("forge, remove or replace the other job's heartbeat")
def _heartbeat(to: dict[str, Any]) -> str:
    file, folder = Path(HEARTBEATS, str(to["job"])), Path(HEARTBEATS)
    return every(
        lambda: os.utime(file),
        lambda: file.write_text(""),
        file.unlink,
        lambda: (folder / "999999").touch(),
        lambda: (folder / str(to["job"])).symlink_to("/dev/null"),
    )


@attempt("read the token of the other job's credentials")
def _token(to: dict[str, Any]) -> str:
    return every(
        lambda: Path(TOKENS, str(to["job"])).read_text(), lambda: Path(TOKENS, str(to["job"])).unlink()
    )


@attempt("set a link in the way of root's writes")
def _links(to: dict[str, Any]) -> str:
    folders = (
        AGENT_RUN,
        TOKENS,
        HEARTBEATS,
        "/var/spool/slurmd",
        to["base_path"],
        "/var/log/slurm",
        "/run/slurm",
    )
    return every(*(lambda f=f: os.symlink("/etc/passwd", f"{f}/link") for f in folders))


@attempt("let slurmd write a job's output through a link")
def _output_link(to: dict[str, Any]) -> str:
    link = Path.home() / "output"
    link.unlink(missing_ok=True)
    link.symlink_to("/var/lib/gpucluster/written-by-slurmd")
    said = called("srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--overlap", f"--output={link}", "true")
    direct = called(
        "sbatch", "--wait", f"--nodelist={to['node']}", "-n1", "--mem=10", f"--output={link}", "--wrap=true"
    )
    there = Path("/var/lib/gpucluster/written-by-slurmd").exists()
    return "got: the file is there" if there else f"refused ({'; '.join((said, direct))})"


# --- processes --------------------------------------------------------------------------------


@attempt("read the other job's environment, memory, files and maps")
def _proc(to: dict[str, Any]) -> str:
    at = Path("/proc", str(to["pid"]))
    return every(
        *(lambda f=f: (at / f).read_bytes() for f in ("environ", "mem", "maps", "io", "auxv")),
        lambda: os.listdir(at / "fd"),
        lambda: os.readlink(at / "cwd"),
    )


@attempt("trace the other job")
def _trace(to: dict[str, Any]) -> str:
    pidfd = os.pidfd_open(int(to["pid"]))
    return every(
        lambda: libc("ptrace", PTRACE_ATTACH, int(to["pid"]), 0, 0),
        lambda: libc("syscall", PIDFD_GETFD, pidfd, 0, 0),
    )


@attempt("signal, slow or limit the other job")
def _signal(to: dict[str, Any]) -> str:
    pid = int(to["pid"])
    return every(
        *(lambda s=s: os.kill(pid, s) for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)),
        lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL),
        lambda: os.sched_setaffinity(pid, {0}),
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4)),
        lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    )


@attempt("signal, trace or read the agent, slurmd and its steps")
def _agent(_: dict[str, Any]) -> str:
    roots = [p for p in _processes() if _matches(p, "gpucluster.agent", "slurmd", "slurmstepd", "munged")]
    if len(roots) < 4:
        return f"only {len(roots)} processes found"
    calls: list[Callable[[], object]] = []
    for pid in roots:
        calls += [lambda p=pid: os.kill(p, signal.SIGKILL), lambda p=pid: os.kill(p, signal.SIGSTOP)]
        calls += [
            lambda p=pid: libc("ptrace", PTRACE_ATTACH, p, 0, 0),
            lambda p=pid: Path(f"/proc/{p}/environ").read_bytes(),
        ]
    return every(*calls)


@attempt("leave the job's control group")
def _cgroup(_: dict[str, Any]) -> str:
    files = [*Path("/run/cg").glob("*/cgroup.procs"), *Path("/sys/fs/cgroup").glob("**/cgroup.procs")]
    if not files:
        return "no control groups"
    return every(*(lambda f=f: f.write_text(str(os.getpid())) for f in files[:200]))


@attempt("stay after the job, outside of it")
def _stay(_: dict[str, Any]) -> str:
    calls = (
        ("systemctl", "stop", "gpucluster-agent"),
        ("systemctl", "--no-ask-password", "restart", "slurmd"),
        ("systemd-run", "--no-ask-password", "true"),
        ("systemd-run", "--user", "true"),
        ("loginctl", "--no-ask-password", "enable-linger"),
        ("crontab", "-l"),
        ("at", "now"),
    )
    return " | ".join(
        f"{argv[0]}: {'got' if (said := called(*argv)).startswith('got') else said[:6]}" for argv in calls
    )


@attempt("fork without an end")
def _forks(_: dict[str, Any]) -> str:
    children: list[int] = []
    try:
        for _n in range(FORKS):
            if not (child := os.fork()):
                time.sleep(30)
                os._exit(0)
            children.append(child)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"limit {resource.getrlimit(resource.RLIMIT_NPROC)[1]}"


@attempt("use the other job's GPU")
def _gpu(to: dict[str, Any]) -> str:
    mine, other = os.environ["SLURM_JOB_GPUS"], to["gpu"]
    opened = [answer(lambda n=n: os.open(f"/dev/nvidia{n}", os.O_RDWR)) for n in (mine, other)]
    return f"own {opened[0]}, other's {opened[1]}"


# --- rights -----------------------------------------------------------------------------------


@attempt("become root")
def _root(_: dict[str, Any]) -> str:
    sudo = called("sudo", "-n", "id")
    return " | ".join(
        (
            in_child(lambda: os.setuid(0)),
            in_child(lambda: os.setgroups([0])),
            f"sudo: {sudo}",
            called("su", "-c", "id"),
        )
    )


@attempt("find set-user-ID programs")
def _setuid(_: dict[str, Any]) -> str:
    found = list[str]()
    for folder, _dirs, files in os.walk("/usr"):
        for name in files:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) and path.is_file():
                    found.append(name)
    return " ".join(sorted(found))


@attempt("mount, load a module, change the kernel's settings")
def _mount(_: dict[str, Any]) -> str:
    return every(
        lambda: libc("mount", b"none", b"/mnt", b"tmpfs", 0, None),
        lambda: libc("umount2", b"/tmp", 2),
        lambda: libc("unshare", CLONE_NEWNS),
        lambda: os.chroot("/tmp"),
        lambda: libc("setns", os.open(f"/proc/{os.getppid()}/ns/mnt", os.O_RDONLY), CLONE_NEWNS),
        lambda: libc("syscall", 175, 0, 0, b""),  # init_module
    )


@attempt("change the kernel's settings in /proc/sys")
def _sysctl(_: dict[str, Any]) -> str:
    files = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger")
    return every(*(lambda f=f: Path(f).write_text("x") for f in files))


@attempt("open raw sockets")
def _raw(_: dict[str, Any]) -> str:
    return every(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3),
    )


def _as_root_of_a_namespace(function: Callable[[], object]) -> str:
    def inside() -> object:
        libc("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        return function()

    return in_child(inside)


@attempt("be root of a user namespace: metadata, the other job, mounts of the node")
def _userns(to: dict[str, Any]) -> str:
    return " ".join(
        (
            _as_root_of_a_namespace(lambda: _metadata_token({})),
            _as_root_of_a_namespace(lambda: Path(f"/proc/{to['pid']}/environ").read_bytes()),
            _as_root_of_a_namespace(lambda: libc("umount2", b"/tmp", 2)),
            _as_root_of_a_namespace(lambda: Path("/etc/munge/munge.key").read_bytes()),
        )
    )


# --- the network ------------------------------------------------------------------------------


def _metadata_token(headers: dict[str, str]) -> object:
    sent = {"X-aws-ec2-metadata-token-ttl-seconds": "60", **headers}
    request = urllib.request.Request(f"{METADATA}/api/token", method="PUT", headers=sent)
    with urllib.request.urlopen(request, timeout=5) as reply:
        return reply.read()


@attempt("read the metadata service")
def _metadata(_: dict[str, Any]) -> str:
    return every(
        lambda: _metadata_token({}),
        lambda: _metadata_token({"X-Forwarded-For": "127.0.0.1"}),
        lambda: urllib.request.urlopen(f"{METADATA}/meta-data/iam/security-credentials/", timeout=5),
        lambda: urllib.request.urlopen(f"{METADATA}/user-data", timeout=5),
    )


@attempt("open the daemon's port a hundred times, also at the same time")
def _daemon(to: dict[str, Any]) -> str:
    found: list[str] = []

    def work() -> None:
        found.extend(answer(lambda: connect(to["head"], 6890)) for _ in range(TRIES // WORKERS))

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return f"{len(found)} x {' '.join(sorted(set(found)))}"


@attempt("use a source port of root")
def _source_port(to: dict[str, Any]) -> str:
    return every(lambda: connect(to["head"], 6890, source=700), lambda: connect(to["head"], 2049, source=800))


@attempt("reach ports of file servers with a client of one's own")
def _file_servers(to: dict[str, Any]) -> str:
    calls = [lambda p=p: connect(to["head"], p) for p in (2049, 988, 1020)]
    return every(*calls, *(lambda p=p: connect("127.0.0.1", p) for p in (20049, 21049, 2049)))


@attempt("send to the Prolog's socket of the agent")
def _prolog(_: dict[str, Any]) -> str:
    def send() -> object:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            return one.sendto(b"x" * 64, f"{AGENT_RUN}/prolog.sock")

    return every(*(send for _ in range(TRIES)))


def _credentials(token: str) -> object:
    request = urllib.request.Request("http://127.0.0.1:301/", headers={"Authorization": token})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return reply.read()


@attempt("get the other job's credentials with a token of one's own making")
def _job_credentials(to: dict[str, Any]) -> str:
    tokens = (
        "",
        "x",
        f"{to['job']}.{to['victim_uid']}.{'A' * 43}",
        f"{to['job']}.{os.getuid()}.{'A' * 43}",
        "A" * 9000,
    )
    return every(*(lambda t=t: _credentials(t) for t in tokens))


@attempt("hold many slow connections to the credentials and to munge")
def _slow(to: dict[str, Any]) -> str:
    held: list[socket.socket] = []
    for _ in range(200):
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", 301), 2)
            one.sendall(b"GET / HTTP/1.1\r\n")
            held.append(one)
    for _ in range(64):
        with contextlib.suppress(OSError):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(1)
            one.connect("/run/munge/munge.socket.2")
            held.append(one)
    Path(to["mark"]).touch()  # the test now uses both as the other job
    time.sleep(float(to["hold_s"]))
    count = len(held)
    for one in held:
        one.close()
    return f"{'held' if count > 100 else 'only'} {count}"


@attempt("get the bundle without a credential")
def _bundle(to: dict[str, Any]) -> str:
    url = f"{to['api']}/{to['bucket']}"
    return every(
        *(
            lambda u=u: urllib.request.urlopen(u, timeout=600)
            for u in (f"{url}/bundle.tar.gz", f"{url}?list-type=2")
        )
    )


# --- Slurm and ssh ----------------------------------------------------------------------------


@attempt("end, change or enter the other job")
def _job(to: dict[str, Any]) -> str:
    job = str(to["job"])
    calls = (
        ("scancel", job),
        ("scancel", "--signal=KILL", "--full", job),
        ("scontrol", "update", f"jobid={job}", "timelimit=1"),
        ("scontrol", "requeue", job),
        ("scontrol", "hold", job),
        ("scontrol", "suspend", job),
        ("scontrol", "write", "batch_script", job, "-"),
        ("srun", f"--jobid={job}", "--overlap", "id"),
        ("sattach", f"{job}.batch"),
        ("sbcast", f"--jobid={job}", "/etc/hostname", "/tmp/x"),
    )
    return " | ".join(f"{argv[0]} {argv[1]}: {called(*argv)}" for argv in calls)


@attempt("rule Slurm")
def _rule(to: dict[str, Any]) -> str:
    calls = (
        ("scontrol", "update", f"nodename={to['node']}", "state=down", "reason=x"),
        ("scontrol", "update", "partitionname=gpu", "state=down"),
        ("scontrol", "reconfigure"),
        ("scontrol", "shutdown"),
        ("scontrol", "reboot", str(to["node"])),
        ("scontrol", "setdebug", "debug5"),
        ("scontrol", "create", "reservation", "user=mallory", "starttime=now", "duration=9", "nodes=ALL"),
        ("srun", "--uid=0", "-n1", "id"),
        ("sbatch", "--uid=5001", "--wrap=id"),
    )
    return " | ".join(f"{argv[0]} {argv[1]}: {called(*argv)}" for argv in calls)


@attempt("submit jobs with hostile names")
def _names(to: dict[str, Any]) -> str:
    names = (
        "\x1b[2J\x1b]0;x\x07",
        "a\nb\rc",
        "$(touch /tmp/owned)`id`",
        "../../../etc/x",
        "{{7*7}}<script>",
        "gpucluster:",
        "n" * 900,
        "\u202e\ud83d",
    )
    said = [
        called("sbatch", "--parsable", "--hold", f"--job-name={n}", f"--comment={n}", "--wrap=true")
        for n in names[:-1]
    ]
    said.append(
        called("sbatch", "--parsable", "--hold", "--job-name=\u202eevil", "--comment=\u202e", "--wrap=true")
    )
    return f"submitted {sum(one.startswith('got') for one in said)}"


SSH = (
    "ssh",
    "-n",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=no",
    "-oUserKnownHostsFile=/dev/null",
    "-oConnectTimeout=10",
)


def _ssh(to: str, command: str = "id") -> str:
    """Return everything that ssh prints."""
    done = subprocess.run((*SSH, to, command), capture_output=True, text=True, timeout=600, check=False)
    return f"exit {done.returncode}: {' '.join((done.stdout + done.stderr).split())[-200:]}"


@attempt("ssh to a node without a job there")
def _ssh_without_job(to: dict[str, Any]) -> str:
    return _ssh(to["other_node"])


@attempt("ssh as another user and as root")
def _ssh_as_others(to: dict[str, Any]) -> str:
    return " | ".join(_ssh(f"{user}@{to['node']}") for user in (to["victim"], "root"))


@attempt("ssh to the head")
def _ssh_to_head(to: dict[str, Any]) -> str:
    return _ssh(to["head"])


@attempt("ssh to the own node (allowed: the session joins the job)")
def _ssh_here(to: dict[str, Any]) -> str:
    Path("/tmp/mine").write_text("mine ")
    return _ssh(to["node"], "cat /tmp/mine; grep -c step_extern /proc/self/cgroup")


# --- filling ----------------------------------------------------------------------------------


def _writable() -> Iterator[str]:
    """Yield every folder outside the home that this user can write to."""
    for folder, below, _ in os.walk("/"):
        if folder in ("/proc", "/sys", "/dev/pts", str(Path.home()), "/usr", "/home"):
            below.clear()
            continue
        if os.access(folder, os.W_OK):
            yield folder
            below.clear()


@attempt("list every folder that a job may write to")
def _folders(_: dict[str, Any]) -> str:
    return " ".join(sorted(_writable()))


@attempt("fill every folder that a job may write to")
def _fill(to: dict[str, Any]) -> str:
    full = 0
    for folder in _writable():
        made: list[Path] = []
        try:
            with contextlib.suppress(OSError):
                made.append(Path(folder, "fill"))
                with made[0].open("wb") as file:
                    for _n in range(FILL_BYTES >> 20):
                        file.write(b"x" * (1 << 20))
            for number in range(FILL_FILES):
                made.append(Path(folder, f"fill{number}"))
                made[-1].touch()
        except OSError:
            full += 1
        finally:
            if folder == "/run/lock":
                time.sleep(float(to["full_s"]))  # the agent reports while it is full
            for path in made:
                path.unlink(missing_ok=True)
    return f"filled, {full} full"


def _processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _matches(pid: int, *words: str) -> bool:
    with contextlib.suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return any(word in line for word in words) and Path(f"/proc/{pid}").stat().st_uid != os.getuid()
    return False


def main() -> None:
    target = json.loads(sys.argv[1])
    for name in sys.argv[2:] or ATTEMPTS:  # the control names the attempts that root repeats
        function = ATTEMPTS[name]
        began = time.monotonic()
        try:
            said = str(function(target))
        except BaseException as error:  # noqa: BLE001  an attempt that broke was not refused, and the test sees it
            said = f"broken: {type(error).__name__}: {error}"
        print(
            json.dumps({"attempt": name, "answer": said, "seconds": round(time.monotonic() - began, 1)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
