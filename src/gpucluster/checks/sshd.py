"""Check sshd: its configuration for root and for each user, and what the running sshd offers.

`sshd -T` shows the files as they are now. A running sshd can have another configuration: from its command line, or because
it was not started again. So a client also asks it for its methods.
"""

import re
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

OURS = "/etc/ssh/sshd_config.d/10-gpucluster.conf"  # the agent writes it
_PLACES = "/etc/ssh/sshd_config $(ls /etc/ssh/sshd_config.d/*.conf)"
_ASK_FILES = (  # $1: an extended regular expression; then the users, for whom a block of Match may say otherwise
    'keys=$1; shift; for user; do sshd -T -C "user=$user,host=here,addr=192.0.2.1,laddr=192.0.2.1,lport=22" || exit; done'
    ' | sort -u | grep -E "^($keys) "'
)
_ASK_DAEMON = (  # ends with 0: 255, the code of ssh for a refusal, is also that of a lost connection
    "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    '-o PreferredAuthentications=none -o ConnectTimeout=5 -o LogLevel=ERROR -- "$1@127.0.0.1" echo admitted 2>&1 || true'
)
PAM = "/etc/pam.d/sshd"
_ACCOUNT = re.compile(r"^account\s.*?(\S+\.so)\b", re.MULTILINE)
_DENIED = re.compile(r"Permission denied \(([a-z,-]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshdWant:
    """Keyword of `sshd -T` -> its value. `users`: names to ask for. `methods`: what the running sshd must offer; empty: any.

    `among`: keyword -> a word that its value must contain. `module`: of PAM, in the account stack of sshd; empty: any stack.
    """

    values: dict[str, str]
    among: dict[str, str]
    users: tuple[str, ...]
    methods: tuple[str, ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """Keyword -> all values over the users; the account stack of PAM; the methods that the running sshd offers."""

    values: dict[str, tuple[str, ...]]
    account: tuple[str, ...]
    methods: tuple[str, ...]


def query_sshd(want: SshdWant) -> tuple[Query, ...]:
    keys = "|".join(sorted((*want.values, *want.among)))
    files = Query(argv=("sh", "-c", _ASK_FILES, "sh", keys, *want.users), limit_s=30.0)
    pam = Query(argv=("cat", PAM))
    if not want.methods:
        return (files, pam)
    return (files, pam, Query(argv=("sh", "-c", _ASK_DAEMON, "sh", want.users[-1])))


def parse_sshd(got: tuple[QueryOutput, ...]) -> Sshd:
    """The lines of `sshd -T`, the PAM stack, and ssh's refusal, which names the methods."""
    values: dict[str, tuple[str, ...]] = {}
    for line in got[0].text().splitlines():
        key, _, value = line.partition(" ")
        values[key] = (*values.get(key, ()), value)
    if not values:
        raise ParseError("sshd -T printed nothing")
    account = tuple(_ACCOUNT.findall(got[1].text()))
    return Sshd(values=values, account=account, methods=_methods(got[2]) if len(got) > 2 else ())


def _methods(refusal: QueryOutput) -> tuple[str, ...]:
    words = refusal.text()
    if words.strip() == "admitted":
        return ("none",)
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
    bad = {key: words for key, words in bad.items() if words}
    offered = bool(want.methods) and found.methods != want.methods
    expected = ", ".join(f"{key} {value}" for key, value in (*want.values.items(), *want.among.items()))
    if bad:
        return failed(listed(list(bad.values())), expected, tuple(bad), _files(tuple(bad)))
    if offered:
        words = f"the running sshd offers {listed(found.methods)}, not {listed(want.methods)}"
        return failed(words, expected, ("methods",), _DAEMON)
    if want.module and want.module not in found.account:
        words = f"{PAM} admits users without a job: its account stack is without {want.module}"
        return failed(words, expected, ("pam",), "on {machine}: systemctl restart gpucluster-agent")
    return passed(expected)


def _other(found: Sshd, key: str, wanted: str) -> str:
    shown = found.values.get(key, ())
    return "" if shown == (wanted,) else f"{key} is {_shown(found, key)}, not {wanted}"


def _shown(found: Sshd, key: str) -> str:
    return listed([short(value, 60) for value in found.values.get(key, ())]) or "missing"


def _files(keys: tuple[str, ...]) -> str:
    """A block of Match stays, without the line."""
    named = "|".join(keys)
    return (
        f"on {{machine}}: for file in {_PLACES}; do [ $file = {OURS} ] || "
        rf"sed -Ei 's/^[[:blank:]]*({named})([[:blank:]]|=)/#&/I' $file; done; "
        "systemctl restart gpucluster-agent; systemctl restart ssh"
    )


_DAEMON = (
    "on {machine}: sed -i 's/^SSHD_OPTS=/#&/' /etc/default/ssh; systemctl revert ssh.service; "
    "systemctl restart ssh"
)
