"""The daemon that owns burst instances, and what the cloud really has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import answers
from gpucluster.checks.model import Answer, Ask, Judgement, ParseError, Place, failed, listed, passed, short
from gpucluster.plan import names

ENDED = ("shutting-down", "terminated")
_BESIDE = (names.ROLE_LOGIN, names.ROLE_STANDBY)
# Read as the daemon's own user: root would leave files beside the database that the daemon cannot open.
_OWNED = """
import json, sqlite3, sys
open_requests, launched = set(), set()
try:
    db = sqlite3.connect("file:JOURNAL?mode=ro", uri=True)
    events = db.execute("SELECT kind, body FROM events WHERE kind LIKE 'Launch%' OR kind = 'Adopted' ORDER BY id").fetchall()
except sqlite3.Error as error:
    sys.exit(f"the daemon's journal cannot be read: JOURNAL: {error}")
for kind, body in events:
    body = json.loads(body)
    if kind == "LaunchAsked":
        open_requests.add(body["ask"]["request"])
    elif kind in ("LaunchDone", "LaunchRefused", "LaunchDropped"):
        open_requests.discard(body["request"])
    launched.update(body.get("instances", ()) or [body[k] for k in ("instance",) if k in body])
print(json.dumps({"open": sorted(open_requests), "launched": sorted(launched)}))
""".replace("JOURNAL", names.JOURNAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """Where the elastic daemon answers nodes."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The cluster whose instances are looked at; without `subnets` where they stand is not."""

    cluster: str
    subnets: tuple[str, ...]
    beside: tuple[str, ...] = ()  # names of the login machines and the standby, which the program makes, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A living instance with the cluster's tag."""

    id: str
    role: str
    request: str
    subnet: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What the cloud has, the head's own id, and what the daemon's journal knows."""

    instances: tuple[Instance, ...]
    head: str
    open: frozenset[str]  # requests without an outcome yet
    launched: frozenset[str]


def ask_daemon(want: Daemon) -> tuple[Ask, ...]:
    argv = (
        "curl",
        "--silent",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        "--max-time",
        "4",
        want.url,
    )
    return (Ask(argv=argv),)


def parse_daemon(got: tuple[Answer, ...]) -> str:
    """An HTTP status; 000 is silence."""
    found = got[0].stdout.strip()
    if got[0].code not in (0, 7, 28, 52, 56) or not re.fullmatch(r"[0-9]{3}", found):
        raise ParseError(f"curl: exit {got[0].code}: {short(got[0].stderr or got[0].stdout)}")
    return found


def judge_daemon(found: str, want: Daemon) -> Judgement:
    """It answers no GET, but it does answer: with any status."""
    expected = f"an answer from {want.url}"
    return failed("no answer", expected) if found == "000" else passed(f"it answers ({found})", expected)


def ask_holdings(_want: Owned) -> tuple[Ask, ...]:
    # the cloud first: what it lists was written into the journal before it was launched
    return (
        Ask(at=Place.CLOUD),
        Ask(argv=("cat", "/var/lib/cloud/data/instance-id"), at=Place.HEAD),
        Ask(
            argv=("runuser", "-u", "slurm", "--", f"{names.VENV}/bin/python", "-I", "-c", _OWNED),
            at=Place.HEAD,
        ),
    )


def parse_holdings(got: tuple[Answer, ...]) -> Holdings:
    """EC2's instances as JSON, and what the head knows."""
    listing, own, journal = got
    head = own.text().strip()
    if not re.fullmatch(r"i-[0-9a-f]{8,17}", head):
        raise ParseError(f"the head's instance id is {short(head, 40)}")
    known = answers.table(journal.text())
    reservations = answers.members(answers.table(listing.text()), "Reservations")
    instances = [_instance(i) for r in reservations for i in answers.members(r, "Instances")]
    return Holdings(
        instances=tuple(sorted((i for i in instances if i is not None), key=lambda i: i.id)),
        head=head,
        open=frozenset(answers.strings(known, "open")),
        launched=frozenset(answers.strings(known, "launched")),
    )


def judge_holdings(found: Holdings, want: Owned) -> Judgement:
    expected = f"one head, and nodes that the daemon launched in the subnets of {want.cluster}"
    odd = [
        f"{i.id} ({short(i.role, 20) or 'no role'})" for i in found.instances if not _is_owned(i, found, want)
    ]
    odd += [f"{i.id} (in {short(i.subnet, 40)})" for i in found.instances if not _is_placed(i, want)]
    if all(i.id != found.head for i in found.instances):
        odd.append(f"the head {found.head} is not in the list")
    if odd:
        return failed(f"owned by nobody: {listed(odd)}", expected)
    beside = sum(i.role in _BESIDE for i in found.instances)
    words = f"the head{f', {beside} beside it' if beside else ''}"
    return passed(f"{words} and {len(found.instances) - 1 - beside} nodes", expected)


def _is_owned(instance: Instance, found: Holdings, want: Owned) -> bool:
    if instance.role == names.ROLE_HEAD:
        return instance.id == found.head
    if instance.role in _BESIDE:
        twins = sum(other.name == instance.name for other in found.instances if other.role in _BESIDE)
        return instance.name in want.beside and twins == 1
    return instance.id in found.launched or (instance.request != "" and instance.request in found.open)


def _is_placed(instance: Instance, want: Owned) -> bool:
    """Login machines stand in public subnets, of which the daemon needs to know nothing."""
    return not want.subnets or instance.role == names.ROLE_LOGIN or instance.subnet in want.subnets


def _instance(item: Mapping[str, Any]) -> Instance | None:
    if answers.text(item, "State", "Name") in ENDED:
        return None
    raw = answers.members(item, "Tags")
    tags = {answers.text(tag, "Key"): answers.text(tag, "Value") for tag in raw}
    return Instance(
        id=answers.text(item, "InstanceId"),
        role=tags.get(names.TAG_ROLE, ""),
        request=tags.get(names.TAG_REQUEST, ""),
        subnet=answers.text(item, "SubnetId"),
        name=tags.get("Name", ""),
    )
