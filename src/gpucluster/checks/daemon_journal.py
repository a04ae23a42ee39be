"""The instances in the daemon's journal, as a query of the head and its parser."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import Location, Query, QueryOutput
from gpucluster.plan import names

# Runs as the daemon's user: SQLite would leave files of root beside the database, which the daemon cannot open.
_READ = """
import json, sqlite3, sys, time
OPENED, CLOSED = "LaunchRequested", ("LaunchDone", "LaunchRefused", "LaunchDropped")
NAMED, ENDED = ("InstanceRunning", "NodeRegistered"), ("TerminationRequested", "InstanceGone")
KINDS = (OPENED, *CLOSED, *NAMED, *ENDED, "InstanceAdopted")
open_requests, launched, living = set(), set(), {}
try:
    db = sqlite3.connect("file:JOURNAL?mode=ro", uri=True)
    pruned = (db.execute("SELECT min(id) FROM events").fetchone()[0] or 0) > 1
    last, memory = db.execute("SELECT last, memory FROM snapshot").fetchone() if pruned else (0, "{}")
    asked = f"SELECT at, kind, body FROM events WHERE id > ? AND kind IN {KINDS} ORDER BY id"
    events = db.execute(asked, (last,)).fetchall()
except (sqlite3.Error, TypeError) as error:  # TypeError: pruned, and without a snapshot
    sys.exit(f"the daemon's journal cannot be read: JOURNAL: {error}")
memory = json.loads(memory)
open_requests.update(memory.get("launches", ()))
for slot, known in memory.get("incarnations", {}).items():
    if known["instance"]:
        living[known["instance"]] = {"slot": slot if known["booted_at"] else "", "at": known["launched_at"]}
living.update({one: {"slot": "", "at": known["launched_at"]} for one, known in memory.get("spares", {}).items()})
launched.update(living, memory.get("endings", ()))
for one in memory.get("endings", ()):
    living.pop(one, None)
for at, kind, body in events:
    body = json.loads(body)
    instances = body.get("instances") or [body[k] for k in ("instance",) if k in body]
    if kind == OPENED:
        open_requests.add(body["request"]["id"])
    elif kind in CLOSED:
        open_requests.discard(body["request"])
    for one in instances:
        if kind in ENDED:
            living.pop(one, None)
        elif kind in NAMED:
            if one in living:
                living[one]["slot"] = body["slot"]
        else:
            launched.add(one)
            living[one] = {"slot": body.get("slot", ""), "at": at}
now = time.time()
shown = [{"id": one, "slot": seen["slot"], "age_s": now - seen["at"]} for one, seen in sorted(living.items())]
print(json.dumps({"open": sorted(open_requests), "launched": sorted(launched), "living": shown}))
""".replace("JOURNAL", names.JOURNAL)
QUERY = Query(
    argv=("runuser", "-u", "slurm", "--", f"{names.VENV}/bin/python", "-I", "-c", _READ), at=Location.HEAD
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingInstance:
    """An instance whose end the daemon has neither requested nor seen. `slot` is empty until EC2 lists it as running."""

    slot: str
    age_s: float  # since its launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """The open requests, the instances that were launched or adopted, and those of them that live by the journal.

    If older events are pruned, an instance whose end was seen before the snapshot is in none of them.
    """

    open: frozenset[str]
    launched: frozenset[str]
    living: Mapping[str, LivingInstance]


def parse(got: QueryOutput) -> Launches:
    """The launches of the daemon's journal."""
    known = json_fields.table(got.text())
    return Launches(
        open=frozenset(json_fields.strings(known, "open")),
        launched=frozenset(json_fields.strings(known, "launched")),
        living={
            json_fields.text(one, "id"): LivingInstance(
                slot=json_fields.text(one, "slot"), age_s=json_fields.number(one, "age_s")
            )
            for one in json_fields.members(known, "living")
        },
    )
