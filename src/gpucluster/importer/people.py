"""The groups of a site, from `getent passwd` and `getent group`. A spec has none: each user has a group with the number of the uid.

Each lost group is a row of the report, and a partition that lets in nobody of the spec is a complaint. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.importer.lines import Effect, FileLine
from gpucluster.importer.made import Made, mapping
from gpucluster.importer.site import Setting, Settings, Site
from gpucluster.plan.model import Account, Partition, SlurmPlan
from gpucluster.slurm.hostlist import fold
from gpucluster.slurm.states import PartitionState
from gpucluster.text import cut_middle

OWN_GROUP = "the uid"  # of a user of a spec: the number of its group
_OPEN = ("all", "")
_SHOWN = 200  # characters of a list
_UNKNOWN = "a file of `getent group > group` beside the others names them"


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    members: frozenset[str]  # without those whose primary group it is
    place: FileLine


@dataclass(frozen=True, slots=True)
class People:
    """The primary group of each user, the groups by number, and both by the other: files of a large site have many of each."""

    gids: Mapping[str, tuple[int, FileLine]]
    groups: Mapping[int, _Group]
    members: Mapping[str, set[str]]  # by group, also of those whose primary group it is
    others: Mapping[str, list[_Group]]  # by user


def read_people(files: Mapping[str, tuple[str, str]]) -> People:
    """Read the files by kind, each with its name and text; broken lines are left out."""
    gids = {row[0]: (int(row[3]), place) for row, place in _rows(files, "passwd", 3)}
    rows = [
        (
            int(row[2]),
            _Group(row[0], frozenset(filter(None, row[3].split(",") if len(row) > 3 else [])), place),
        )
        for row, place in _rows(files, "group", 2)
    ]
    groups: dict[int, _Group] = {}
    by_gid: dict[int, set[str]] = {}  # slurmctld takes the members of all names of a number
    others: dict[str, list[_Group]] = {}
    for gid, one in rows:
        groups.setdefault(gid, one)
        by_gid.setdefault(gid, set()).update(one.members)
        for user in one.members - {one.name}:
            others.setdefault(user, []).append(one)
    for user, (gid, _) in gids.items():
        if gid in groups:
            by_gid[gid].add(user)
    members = {one.name: by_gid[gid] for gid, one in rows}
    return People(gids, groups, members, others)


def _rows(
    files: Mapping[str, tuple[str, str]], kind: str, number: int
) -> Iterator[tuple[list[str], FileLine]]:
    """The fields of each line that has a gid in this one."""
    name, text = files.get(kind, ("", ""))
    for at, line in enumerate(text.splitlines(), 1):
        row = line.strip().split(":")
        if len(row) > number and row[number].isascii() and row[number].isdecimal() and len(row[number]) <= 10:
            yield row, FileLine(name, at)


def with_groups(site: Site, rendered: Site, made: Made, people: People) -> None:
    """Add the groups of the users that the spec has, to be compared."""
    for one in made.rows("users"):
        user, uid = str(one["name"]), one["uid"]
        settings: Settings = {}
        if user in people.gids and people.gids[user][0] != uid:
            gid, place = people.gids[user]
            shown = f"{gid} ({people.groups[gid].name})" if gid in people.groups else str(gid)
            settings["gid"] = Setting(shown, place, "gid")
            rendered.people[user] = {"gid": Setting(OWN_GROUP, place, "gid")}
        if others := people.others.get(user):
            settings["groups"] = Setting(",".join(group.name for group in others), others[0].place, "groups")
        if settings:
            site.people[user] = settings


def report_members(site: Site, made: Made, plan: SlurmPlan, people: People) -> None:
    """Report the partitions of which no user of the spec is known to be let in. Nobody uses one that is DOWN."""
    old = {new: name for name, new in made.partitions.items()}
    extra = {str(one["name"]): mapping(one.get("extra")) for one in made.rows("partitions")}
    groups: dict[str, Setting] = {}
    used = None if plan.slurm.accounting is None else _with_users(plan.slurm.accounting.accounts)
    for partition in plan.partitions:
        settings, more = site.partitions[old[partition.name]], extra[partition.name]
        if str(more.get("State")).upper() == PartitionState.DOWN.value:
            continue
        if "AllowGroups" in more and settings["allowgroups"].value.lower() not in _OPEN:
            groups[partition.name] = settings["allowgroups"]
        if used is not None:
            _report_accounts(site, partition, settings, used)
    _report_groups(site, groups, people, {str(one["name"]) for one in made.rows("users")})


def _report_groups(site: Site, rules: Mapping[str, Setting], people: People, users: set[str]) -> None:
    """One line for all partitions with the same members."""
    by_members: dict[str, list[str]] = {}
    for partition, rule in rules.items():
        members = sorted({user for name in _names(rule) for user in people.members.get(name, set()) & users})
        shown = cut_middle(fold(members), _SHOWN)
        known = f"of the imported users {shown} are members" if members else "no imported user is a member"
        by_members.setdefault(known if people.groups else _UNKNOWN, []).append(partition)
    for known, partitions in by_members.items():
        names = dict.fromkeys(name for one in partitions for name in _names(rules[one]))
        site.complain(
            rules[partitions[0]].place,
            f"AllowGroups of partition {cut_middle(fold(partitions), _SHOWN)}: a spec has no groups, and slurmctld asks the head "
            f"for the members of {cut_middle(fold(list(names)), _SHOWN)}. Jobs wait or are refused until the head knows them, for "
            f"example by `groupadd` and `usermod --append --groups`; {known}",
            Effect.REFUSED,
        )


def _names(rule: Setting) -> list[str]:
    return [name.strip() for name in rule.value.split(",")]


def _report_accounts(site: Site, partition: Partition, settings: Settings, used: list[Account]) -> None:
    qos = {name for one in used for name in one.qos}
    lists = (
        ("allowaccounts", partition.accounts, {one.name for one in used}),
        ("allowqos", partition.allow_qos, qos),
    )
    for key, names, having in lists:
        if names and key in settings and not having & set(names):
            rule = settings[key]
            site.complain(
                rule.place,
                f"{rule.written} of partition {partition.name}: no imported user has {fold(names)}; add the users in `accounts`",
                Effect.REFUSED,
            )


def _with_users(accounts: Iterable[Account]) -> list[Account]:
    """The accounts with users, also below them; parents stand before their children."""
    used = dict[str, Account]()
    parents = set[str]()
    for one in reversed(tuple(accounts)):
        if one.users or one.name in parents:
            used[one.name] = one
            parents.add(one.parent)
    return list(used.values())
