"""Check that the ports of Slurm's daemons answer between machines. A packet filter that closes one looks like a daemon that is dead.

A port behind which no program listens, or accepts, is no fault of the network: it passes here, and the daemon's own check fails.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
)
from gpucluster.text import short

ANSWER_S = 3
MOST_RULES = 200  # lines; this answer is an argument of the next query
_LINE = re.compile(
    r"(?P<way>to|from) \S+ (?P<port>[0-9]{1,5}) (?P<code>[0-9]{1,3}) ?(?P<words>.*)"
    r"|listens (?P<listens>[0-9]{1,5}) (?P<waiting>[0-9]{1,9}) (?P<most>[0-9]{1,9})|address [0-9.]*"
)
_PORTS = re.compile(r"\b[ds]port (?:!= )?(\{[^{}]*\}|\S+)")
# An attempt is `to|from ADDRESS PORT CODE WORDS`, 124 for no answer; a listener `listens PORT WAITING MOST`, of connections that it
# has not accepted. Then the rules that refuse packets of a port.
_SHELL = f"""\
command -v ss >/dev/null || {{ echo "ss is missing" >&2; exit 3; }}
try() {{
  words=$(timeout {ANSWER_S} bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>&1); code=$?
  words=${{words%%$'\\n'*}}
  echo "$1 $2 $3 $code ${{words##*: }}"
}}
listeners() {{
  ss -Hltn | while read -r _ waiting most local _; do
    for port; do [ "${{local##*:}}" != "$port" ] || echo "listens $port $waiting $most"; done
  done | sort -u
}}
rules() {{
  nft -a list ruleset 2>/dev/null | grep -E '^table |^[[:space:]]*chain |[ds]port.*(drop|reject).*# handle' | head -n {MOST_RULES}
  true
}}
"""
_SELF = f"""{_SHELL}
read -ra heads <<<"$1"; read -ra ports <<<"$2"; read -ra own <<<"$3"
tried=$(for head in "${{heads[@]}}"; do for port in "${{ports[@]}}"; do try to "$head" "$port" & done; done; wait)
echo "$tried"
listeners "${{own[@]}}"
for head in "${{heads[@]}}"; do
  address=$(ip -4 route get "$head" | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p' | head -n 1)
  [ -z "$address" ] || {{ echo "address $address"; break; }}
done
echo --
rules
"""
_HEAD = f"""{_SHELL}
read -ra ports <<<"$1"; read -ra own <<<"$2"
address=$(sed -n 's/^address //p' <<<"$3" | head -n 1)
tried=$([ -z "$address" ] || for port in "${{ports[@]}}"; do try from "$address" "$port" & done; wait)
[ -z "$tried" ] || echo "$tried"
listeners "${{own[@]}}"
echo --
rules
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of the head that this machine reaches, and its own that the head does. Of several heads one must answer.

    `on_head`: this machine is the head, and reaches itself.
    """

    heads: tuple[str, ...]  # addresses
    to_head: tuple[int, ...]
    from_head: tuple[int, ...] = ()
    on_head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of nft that refuses packets."""

    chain: str  # FAMILY TABLE CHAIN
    handle: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to connect. `code`: 0 is an open port, 124 no answer."""

    head_is_asked: bool  # by this machine, else it asks
    port: int
    code: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one machine says. `listens`: port -> whether its program accepts connections, as its queue is not full."""

    attempts: tuple[Attempt, ...]
    listens: dict[int, bool]
    rules: tuple[Rule, ...]


def query_ports(want: Ports) -> tuple[Query, ...]:
    """On the machine and, unless it is the head, on the head."""
    heads, to_head, from_head = (
        " ".join(map(str, words)) for words in (want.heads, want.to_head, want.from_head)
    )
    own = to_head if want.on_head else from_head
    here = Query(argv=("bash", "-c", _SELF, "bash", heads, to_head, own), limit_s=20.0)
    there = ("bash", "-c", _HEAD, "bash", from_head, to_head, "{fed}")
    return (here,) if want.on_head else (here, Query(argv=there, at=Location.HEAD, limit_s=20.0))


def parse_ports(got: tuple[QueryOutput, ...]) -> tuple[Side, ...]:
    """This machine, then the head if it is another."""
    return tuple(map(_side, got))


def evaluate_ports(found: tuple[Side, ...], want: Ports) -> CheckResult:
    """Culprits are the ports."""
    here, head = found[0], found[-1]
    ways = (
        *((True, port, here.attempts, head.listens) for port in want.to_head),
        *((False, port, head.attempts, here.listens) for port in want.from_head),
    )
    expected = f"open: {listed([_port(port, of_head) for of_head, port, *_ in ways])}"
    closed: dict[int, str] = {}
    for of_head, port, attempts, listens in ways:
        tried = [one for one in attempts if one.head_is_asked is of_head and one.port == port]
        if not tried:
            return unknown(f"nobody tried {_port(port, of_head)}", expected)
        if not any(one.code == 0 for one in tried) and listens.get(port, False):
            closed[port] = f"{_port(port, of_head)} {_answer(tried[-1])}"
    if not closed:
        return passed(expected)
    steps = [
        _opened(side, where, closed)
        for side, where in zip(found, ("on {machine}", "on the head"), strict=False)
    ]
    culprits = tuple(map(str, closed))
    return failed(listed(list(closed.values())), expected, culprits, "; ".join(filter(None, steps)))


def _port(port: int, of_head: bool) -> str:
    return f"port {port} of {'the head' if of_head else 'this machine'}"


def _answer(one: Attempt) -> str:
    who = "this machine" if one.head_is_asked else "the head"
    if one.words == "Connection refused":
        return f"refuses {who}"
    return f"does not answer {who}" + (f" ({short(one.words, 60)})" if one.code != TIMED_OUT else "")


def _opened(side: Side, where: str, closed: Collection[int]) -> str:
    rules = [one for one in side.rules if any(_names(one.text, port) for port in closed)]
    steps = [f"nft delete rule {one.chain} handle {one.handle}" for one in rules]
    return f"{where}: {'; '.join(steps)}" if steps else ""


def _names(rule: str, port: int) -> bool:
    """Whether a rule is of this port: `tcp dport 6817 drop`, `dport { 22, 6810-6820 }`."""
    for words in _PORTS.findall(rule):
        for word in words.strip("{} ").split(","):
            low, _, high = word.strip().partition("-")
            if low.isdecimal() and int(low) <= port <= int(high if high.isdecimal() else low):
                return True
    return False


def _side(got: QueryOutput) -> Side:
    shown, mark, rules = got.text().partition("--\n")
    if not mark:
        raise ParseError(f"the answer has no end: {short(shown, 60)!r}")
    attempts: list[Attempt] = []
    listens: dict[int, bool] = {}
    for line in shown.splitlines():
        row = _LINE.fullmatch(line)
        if row is None:
            raise ParseError(f"the attempts have the line {short(line, 60)!r}")
        if row["way"]:
            asked = row["way"] == "to"
            attempts.append(
                Attempt(head_is_asked=asked, port=int(row["port"]), code=int(row["code"]), words=row["words"])
            )
        elif row["listens"]:
            port = int(row["listens"])
            listens[port] = listens.get(port, False) or int(row["waiting"]) <= int(row["most"])
    return Side(attempts=tuple(attempts), listens=listens, rules=tuple(_rules(rules)))


def _rules(text: str) -> Iterator[Rule]:
    """The rules below their table and chain, as `nft --handle` prints them."""
    table = chain = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("table "):
            table = " ".join(words[1:3])
        elif words[:1] == ["chain"]:
            chain = words[1] if len(words) > 1 else ""
        elif (row := re.fullmatch(r"\s*(\S.*) # handle ([0-9]{1,9})", line)) is not None:
            yield Rule(chain=f"{table} {chain}", handle=int(row[2]), text=row[1])
