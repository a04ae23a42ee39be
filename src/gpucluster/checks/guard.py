"""Check the guard: what root alone reaches, and the packet filter's rules for it. `plan.guard_rules` has the rules."""

import re
from collections import Counter
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
)
from gpucluster.plan import guard_rules, names
from gpucluster.text import short

_TOKEN = (
    *("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--max-time", "8"),
    *("--request", "PUT", "--header", "X-aws-ec2-metadata-token-ttl-seconds: 60"),
    f"{names.METADATA}/latest/api/token",
)
# The same nft prints both, so that its version does not matter: the planned rules from a network namespace of their own,
# which ends with its shell. Without our table there is nothing after the line.
_RULES = f"""\
unshare --net sh -ec 'printf %s "$1" | nft -f -; nft --stateless list table {guard_rules.TABLE}' sh "$1"
echo --
tables=$(nft list tables)
if printf '%s\n' "$tables" | grep -qxF 'table {guard_rules.TABLE}'; then nft --stateless list table {guard_rules.TABLE}; fi
"""
PORTS = (names.NFS_PORT, names.LUSTRE_PORTS[0][0], names.REGISTRATION_PORT, names.EFS_PROXY_PORTS[0])
_LAST = "tried"
_FIRST_PORT = "ip_unprivileged_port_start"
_LOWEST = f"/proc/sys/net/ipv4/{_FIRST_PORT}"  # the first port that any user binds
REMEDY = f"on {{machine}}: {remedies.restart('gpucluster-guard', 'gpucluster-agent')}; nft list table {guard_rules.TABLE}"
_PORT_REMEDY = (
    f"sysctl net.ipv4.{_FIRST_PORT}={guard_rules.PRIVILEGED}; grep -rs {_FIRST_PORT} /etc/sysctl.conf /etc/sysctl.d"
    "  # a file with it sets it again at the next boot"
)
# Connect to this machine at each port by each kind of socket, and print those whose packets pass. A port without a server refuses
# the connection, which shows it, too; the guard's own refusal is another one, and a packet that is dropped has no answer.
ATTEMPT = f"""\
import ctypes, errno, select, socket, struct, sys, time
libc, reached, waiting = ctypes.CDLL(None, use_errno=True), (0, errno.ECONNREFUSED), {{}}
def look(name, code):
    if code in reached: print(name)
for kind, asked in {{"TCP": (2, 1, 0), "MPTCP": (2, 1, 262), "SMC": (43, 1, 0)}}.items():
    for port in map(int, sys.argv[1:]):
        try: one = socket.socket(*asked)
        except OSError: continue
        one.setblocking(False)
        to = struct.pack("=H", 2) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
        code = ctypes.get_errno() if libc.connect(one.fileno(), to, len(to)) else 0
        if code == errno.EINPROGRESS: waiting[one] = f"port {{port}} by {{kind}}"
        else: look(f"port {{port}} by {{kind}}", code); one.close()
until = time.monotonic() + 2
while waiting and time.monotonic() < until:
    for one in select.select([], [*waiting], [], 0.1)[1]:
        look(waiting.pop(one), one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)); one.close()
print("{_LAST}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The metadata service and the guarded ports: root reaches them, an ordinary user does not. The rules are those for `users`."""

    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFound:
    """The HTTP status for root and for an ordinary user; the lines of our table of rules, and what they must be.

    `reached`: the guarded ports that packets of an ordinary user reach, each with the kind of socket.
    """

    root: str
    user: str
    rules: tuple[str, ...]
    wanted: tuple[str, ...]
    first_port: int | None  # that an ordinary user binds; None: it cannot be read
    reached: tuple[str, ...] = ()
    untried: str = ""  # why it is not known


def query_guard(want: Guard) -> tuple[Query, ...]:
    rules = Query(argv=("sh", "-ec", _RULES, "sh", guard_rules.rules(want.users)))
    attempt = Query(
        argv=(f"{names.VENV}/bin/python", "-I", "-S", "-c", ATTEMPT, *map(str, PORTS)), as_user=True
    )
    return (
        Query(argv=_TOKEN),
        Query(argv=_TOKEN, as_user=True),
        rules,
        attempt,
        Query(argv=("cat", _LOWEST)),
    )


def parse_guard(got: tuple[QueryOutput, ...]) -> GuardFound:
    """A status of 000 means no answer."""
    wanted, between, there = got[2].text().partition("--\n")
    if not wanted.startswith("table ") or not between:
        raise ParseError(f"nft printed {short(got[2].stdout, 80)}")
    *reached, last = _lines(got[3].stdout) or ("",)
    return GuardFound(
        root=_status(got[0]),
        user=_status(got[1]),
        rules=_lines(there),
        wanted=_lines(wanted),
        reached=tuple(reached) if last == _LAST else (),
        first_port=_port(got[4]),
        untried="" if last == _LAST else f"exit {got[3].code}: {short(got[3].stderr or got[3].stdout, 80)}",
    )


def evaluate_guard(found: GuardFound, _want: Guard) -> CheckResult:
    expected = "root gets 200, an ordinary user gets no answer and reaches no guarded port; the rules are those that the agent loads"
    words = f"root gets {_http(found.root)}, an ordinary user gets {_http(found.user)}"
    wrong = (*_reached(found), *_other_rules(found))
    low = found.first_port is not None and found.first_port < guard_rules.PRIVILEGED
    if low:
        words += f"; an ordinary user binds ports from {found.first_port}"
    if found.user != "000" or wrong:
        return failed("; ".join((words, *wrong)), expected, (), f"{REMEDY}; {_PORT_REMEDY}" if low else "")
    if low:
        return failed(words, expected, (), f"on {{machine}}: {_PORT_REMEDY}")
    if found.root != "200":  # if root gets no answer, a missing answer for the user proves nothing
        return unknown(words, expected)
    if found.untried:
        return unknown(f"the guarded ports are not tried as a user: {found.untried}", expected)
    if found.first_port is None:
        return unknown(f"{_LOWEST} cannot be read", expected)
    return passed(f"{words}; {len(found.rules)} lines of rules", expected)


def _reached(found: GuardFound) -> tuple[str, ...]:
    return (f"an ordinary user reaches {listed(found.reached)}",) if found.reached else ()


def _other_rules(found: GuardFound) -> tuple[str, ...]:
    """How the rules differ from what they must be; empty if they do not."""
    if not found.rules:
        return (f"nft has no table {guard_rules.TABLE}",)
    there, wanted = Counter(found.rules), Counter(found.wanted)
    words = [
        *(f"added: {short(line, 120)}" for line in there - wanted),
        *(f"missing: {short(line, 120)}" for line in wanted - there),
    ]
    if not words and found.rules != found.wanted:
        words = [f"the rules of {guard_rules.TABLE} have another order"]
    return (listed(words, 3),) if words else ()


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in map(str.strip, text.splitlines()) if line)


def _port(answer: QueryOutput) -> int | None:
    text = answer.stdout.strip()
    return int(text) if answer.code == 0 and re.fullmatch(r"[0-9]{1,5}", text) else None


def _status(answer: QueryOutput) -> str:
    """The HTTP status. curl ends with 7 if it cannot connect and with 28 after a timeout; other codes prove nothing."""
    if answer.code not in (0, 7, 28) or not re.fullmatch(r"[0-9]{3}", answer.stdout.strip()):
        raise ParseError(f"curl: exit {answer.code}: {short(answer.stderr or answer.stdout)}")
    return answer.stdout.strip()


def _http(status: str) -> str:
    return "no answer" if status == "000" else status
