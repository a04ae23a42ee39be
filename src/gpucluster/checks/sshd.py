"""Check sshd: its configuration for root and for each user, and what the running sshd offers.

`sshd -T` shows the files as they are now. A running sshd can have another configuration: from its command line, or because
it was not started again. So a client also asks it for its methods.
"""

import re
from dataclasses import dataclass

from gpucluster.checks import remedies
from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.plan import node_ssh
from gpucluster.text import short

OURS = "/etc/ssh/sshd_config.d/10-gpucluster.conf"  # the agent writes it
_PLACES = "/etc/ssh/sshd_config $(ls /etc/ssh/sshd_config.d/*.conf)"
_ASK_FILES = (  # $1: an extended regular expression; then the users, for whom a block of Match may say otherwise
    'keys=$1; shift; for user; do sshd -T -C "user=$user,host=here,addr=192.0.2.1,laddr=192.0.2.1,lport=22" || exit; done'
    ' | sort -u | grep -E "^($keys) "'
)
_ASK_DAEMON = (  # by the machine's own address: users come by it. Ends with 0: 255, the code of ssh for a refusal, is also that of a lost connection
    'address=$(ip -4 -o route get 192.0.2.1 | sed "s/.* src \\([0-9.]*\\).*/\\1/"); '
    "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o PreferredAuthentications=none "
    '-o ConnectTimeout=5 -o LogLevel=ERROR -- "$1@${address:-127.0.0.1}" echo admitted 2>&1 || true; '
    'for file in /etc/nologin /run/nologin; do if [ -e $file ]; then echo "nologin:$file"; fi; done'  # pam_nologin(8)
)
_REFUSED = "Connection refused"
_PLACE = ("listenaddress", "port", "addressfamily")  # what decides where sshd listens
PAM = "/etc/pam.d/sshd"
_ASK_PAM = (  # with the text of the files that it includes; awk reads one level, and Debian's files have no more
    """awk '$1 == "@include" {while ((getline line <("/etc/pam.d/" $2)) > 0) print line; next} {print}' """
    + PAM
)
_ASK_OPERATORS = f"cat {node_ssh.OPERATORS} 2>/dev/null || true"  # other machines have no such file
_OF_ACCOUNT = re.compile(r"-?account|@include", re.IGNORECASE)  # an inner @include may hold account lines
_DENIED = re.compile(r"Permission denied \(([a-z,-]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """sshd of a node: PAM's account stack begins with node_ssh.ACCOUNT_STACK, and its list has exactly these accounts."""

    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SshdWant:
    """Keyword of `sshd -T` -> its value. `users`: names to ask for. `methods`: what the running sshd must offer at the
    machine's own address, where no file of pam_nologin may be; empty: neither is asked.

    `among`: keyword -> a word that its value must contain. `unset`: keywords that must have no value. `admission`: of users
    with a job only; None: any account stack.
    """

    values: dict[str, str]
    among: dict[str, str]
    users: tuple[str, ...]
    methods: tuple[str, ...] = ()
    admission: Admission | None = None
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """Keyword -> all values over the users; the methods that the running sshd offers (none: it refuses the connection);
    the files of pam_nologin.

    The account stack of PAM, a line each with single spaces, and the accounts that need no job.
    """

    values: dict[str, tuple[str, ...]]
    account: tuple[str, ...]
    operators: tuple[str, ...]
    methods: tuple[str, ...]
    nologin: tuple[str, ...]


def query_sshd(want: SshdWant) -> tuple[Query, ...]:
    keys = "|".join(sorted((*want.values, *want.among, *want.unset)))
    files = Query(argv=("sh", "-c", _ASK_FILES, "sh", keys, *want.users), limit_s=30.0)
    asked = (files, Query(argv=("sh", "-c", _ASK_PAM)), Query(argv=("sh", "-c", _ASK_OPERATORS)))
    if not want.methods:
        return asked
    return (*asked, Query(argv=("sh", "-c", _ASK_DAEMON, "sh", want.users[-1])))


def parse_sshd(got: tuple[QueryOutput, ...]) -> Sshd:
    """The lines of `sshd -T`, the PAM stack, the list of operators, and ssh's refusal, which names the methods, with the files of pam_nologin."""
    files, pam, operators, *daemon = got
    said = [line for answer in daemon for line in answer.text().splitlines()]
    refusal = [line for line in said if not line.startswith("nologin:")]
    values: dict[str, tuple[str, ...]] = {}
    for line in files.text().splitlines():
        key, _, value = line.partition(" ")
        values[key] = (*values.get(key, ()), value)
    if not values:
        raise ParseError("sshd -T printed nothing")
    return Sshd(
        values=values,
        account=_account_stack(pam.text()),
        operators=tuple(operators.text().split()),
        methods=_methods("\n".join(refusal)) if daemon else (),
        nologin=tuple(line.removeprefix("nologin:") for line in said if line not in refusal),
    )


def _account_stack(pam: str) -> tuple[str, ...]:
    """PAM joins lines that end with a backslash, ignores what follows `#`, and the case of the first word."""
    lines = (line.partition("#")[0].split() for line in pam.replace("\\\n", " ").splitlines())
    return tuple(" ".join(words) for words in lines if words and _OF_ACCOUNT.fullmatch(words[0]))


def _methods(words: str) -> tuple[str, ...]:
    if words.strip() == "admitted":
        return ("none",)
    if words.endswith(_REFUSED):
        return ()
    denied = _DENIED.search(words)
    if denied is None:
        raise ParseError(f"ssh to this machine: {short(words, 120) or 'no answer'}")
    return tuple(denied[1].split(","))


def evaluate_sshd(found: Sshd, want: SshdWant) -> CheckResult:
    """Culprits are keywords. The remedy makes foreign lines of a wrong keyword comments, and lets the agent write its file."""
    bad = {key: _other(found, key, value) for key, value in want.values.items()}
    bad |= {
        key: f"{key} is {_shown(found, key)}, without {word}"
        for key, word in want.among.items()
        if not all(word in value.split() for value in found.values.get(key, ("",)))
    }
    bad |= {
        key: f"{key} is {_shown(found, key)}, and must not be set"
        for key in want.unset
        if key in found.values
    }
    bad = {key: words for key, words in bad.items() if words}
    offered = bool(want.methods) and found.methods != want.methods
    expected = ", ".join(f"{key} {value}" for key, value in (*want.values.items(), *want.among.items()))
    others = "" if want.admission is None else _admits_others(found, want.admission)
    if bad or others or found.nologin:
        kept_out = [f"{file} keeps all users but root out" for file in found.nologin]
        faults = [*bad.values(), *([others] if others else []), *kept_out]
        culprits = (*bad, *(["pam"] if others else []), *(["nologin"] if kept_out else []))
        steps = [f"rm {' '.join(found.nologin)}"] if kept_out else []
        steps += [_files(tuple(bad))] if bad else [_AGENT] if others else []
        return failed(listed(faults), expected, culprits, f"on {{machine}}: {'; '.join(steps)}")
    if offered and not found.methods:
        return failed(
            "sshd refuses connections at the machine's own address",
            expected,
            _PLACE,
            f"on {{machine}}: {_files(_PLACE)}",
        )
    if offered:
        words = f"the running sshd offers {listed(found.methods)}, not {listed(want.methods)}"
        return failed(words, expected, ("methods",), _DAEMON)
    return passed(expected)


def _admits_others(found: Sshd, want: Admission) -> str:
    """Say why sshd may admit a user without a job, or refuse an operator."""
    wanted = node_ssh.ACCOUNT_STACK
    for place, line in enumerate(wanted):
        there = found.account[place] if place < len(found.account) else "missing"
        if there != line:
            return f"{PAM} may admit users without a job: account line {place + 1} is {short(there, 120)}, not {line}"
    if set(found.operators) != set(want.operators):
        there, planned = listed(sorted(set(found.operators))) or "nobody", listed(sorted(want.operators))
        return f"{node_ssh.OPERATORS} has {there}, not {planned}"
    return ""


def _other(found: Sshd, key: str, wanted: str) -> str:
    shown = found.values.get(key, ())
    return "" if shown == (wanted,) else f"{key} is {_shown(found, key)}, not {wanted}"


def _shown(found: Sshd, key: str) -> str:
    return listed([short(value, 60) for value in found.values.get(key, ())]) or "missing"


def _files(keys: tuple[str, ...]) -> str:
    """A block of Match stays, without the line."""
    named = "|".join(keys)
    return (
        f"for file in {_PLACES}; do [ $file = {OURS} ] || "
        rf"sed -Ei 's/^[[:blank:]]*({named})([[:blank:]]|=)/#&/I' $file; done; "
        f"{remedies.restart('gpucluster-agent', 'ssh')}"
    )


_AGENT = remedies.restart("gpucluster-agent")  # it writes the stack and the list again
_DAEMON = (
    "on {machine}: sed -i 's/^SSHD_OPTS=/#&/' /etc/default/ssh; systemctl revert ssh.service; "
    f"{remedies.restart('ssh')}"
)
