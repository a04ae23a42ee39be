"""The keys of Slurm's files: their spelling, the versions that know them, and the older names of a key.

`canonical` gives keys of the same meaning one name, so that a comparison finds a value that only has another name.
"""

import re

from gpucluster import catalog
from gpucluster.text import format_duration

OLD_NAMES = {  # (kind, key) -> the key that has taken its place, with the same values
    ("slurm.conf", "controlmachine"): "slurmctldhost",
    ("slurm.conf", "controladdr"): "slurmctldhost address",
    ("slurm.conf", "backupcontroller"): "slurmctldhost 2",
    ("slurm.conf", "backupaddr"): "slurmctldhost 2 address",
    ("slurm.conf", "cryptotype"): "credtype",
    ("slurm.conf", "jobcontainertype"): "namespacetype",
    ("node", "procs"): "cpus",
    ("node", "feature"): "features",
    ("node", "sockets"): "socketsperboard",
    ("partition", "shared"): "oversubscribe",
    ("partition", "allocqos"): "allowqos",
    ("partition", "priority"): "prioritytier",  # it sets PriorityJobFactor, too
    ("gres.conf", "cpus"): "cores",
    ("gres.conf", "files"): "file",
    ("gres.conf", "link"): "links",
}
TIMES = {  # in minutes, rounded up
    ("partition", "maxtime"), ("partition", "defaulttime"), ("slurm.conf", "maxtime"),
}  # fmt: skip
TIMES_IN_SECONDS = {("slurm.conf", "preemptexempttime")}
HIDDEN = "…"
_HIDDEN_WORDS = "pass|pw|psk|secret|token|(?:api|access)_?key|credential"  # a key, or a word of a value, with such a part may hold a password
_PATHS = frozenset(  # keys of Slurm with such a part, whose value is the path of a file
    ("jobcredentialprivatekey", "jobcredentialpubliccertificate", "jobcomppassscript", "storagepassscript")
)
_LISTS_OF_NAMES = frozenset(  # a name of the site is no password: lsdyna_token:100, gpu:passthrough:4
    (
        "licenses", "gres", "grestypes", "accountingstoragetres", "tresbillingweights", "feature", "features",
        "nodename", "nodes", "nodeset", "partitionname", "downnodes", "switchname", "blockname", "switches",
        "allowgroups", "allowaccounts", "denyaccounts", "allowqos", "denyqos", "qos",
    )
)  # fmt: skip
_OF_KEY = re.compile(_HIDDEN_WORDS, re.IGNORECASE)
_OF_USER = re.compile(r":(?://)?")  # slurm:PASSWORD@db, http://USER:PASSWORD@es
_OF_PROGRAM = re.compile(r"(/\S+\s).*", re.DOTALL)  # from its options on
_WORD = re.compile(r"\b\w++[=:]")  # whole: a search from each of its letters takes the square of its length
_UNLIMITED = frozenset({"infinite", "unlimited", "-1"})
YES = ("yes", "true", "up", "1")  # s_p_handle_boolean
_YES_NO = {**dict.fromkeys(YES, "yes"), **dict.fromkeys(("no", "false", "down", "0"), "no")}


def canonical(kind: str, key: str) -> str:
    """The one name of a key, in lower case."""
    low = key.lower()
    return OLD_NAMES.get((kind, low), low)


def spelled(kind: str, key: str) -> str:
    """The key as the manual page writes it; an unknown key as given."""
    return _spellings(kind).get(key.lower(), key)


def known(kind: str, key: str, version: str) -> bool:
    """Whether this version reads the key. True for a kind of file without recorded keys."""
    return version in versions(kind, key) or not _spellings(kind)


def versions(kind: str, key: str) -> tuple[str, ...]:
    """The versions that know the key, oldest first; a version that reads and ignores it does not count."""
    return catalog.slurm_key_versions(kind).get(key.lower(), ())


def same(kind: str, key: str, one: str, other: str) -> bool:
    """Whether two values mean the same to Slurm: the case, the order of a list and the form of a time do not matter."""
    return one == other or _meaning(kind, key, one) == _meaning(kind, key, other)


def minutes(text: str) -> int | None:
    """Minutes of a time limit of slurm.conf, rounded up; None for no limit. ValueError for another form."""
    found = seconds(text)
    return None if found is None else -(-found // 60)


def seconds(text: str) -> int | None:
    """Seconds of a time of slurm.conf; a number alone is minutes. None for no limit. ValueError for another form."""
    low = text.strip().lower()
    if low in _UNLIMITED:
        return None
    days, dash, rest = low.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if len(parts) > 3 or any(part < 0 for part in parts) or len(low) > 20:
        raise ValueError(text)
    if dash:
        hours, mins, secs = (*parts, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + mins) * 60 + secs
    if len(parts) == 1:
        return parts[0] * 60
    if len(parts) == 2:
        return parts[0] * 60 + parts[1]
    return (parts[0] * 60 + parts[1]) * 60 + parts[2]


def duration(mins: int) -> str:
    """Minutes as a spec writes a time."""
    return format_duration(mins * 60)


def shown(kind: str, key: str, value: str) -> str:
    """The value without a password: that of a key, before a host, the options of a program, and from such a word of a list to its end.

    Of a key that no version knows only yes and no are shown: nobody can say what it is for.
    """
    low = key.lower()
    if low in _LISTS_OF_NAMES:
        return value
    if _spellings(kind) and low not in _spellings(kind) and (kind, low) not in OLD_NAMES:
        return value if value.lower() in _YES_NO else HIDDEN
    if low not in _PATHS and _OF_KEY.search(key):
        return HIDDEN
    if program := _OF_PROGRAM.fullmatch(value):
        return program[1] + HIDDEN
    before, at, host = value.rpartition("@")
    if at and (user := _OF_USER.search(before)):
        value = f"{before[: user.end()]}{HIDDEN}@{host}"
    secret = next((word for word in _WORD.finditer(value) if _OF_KEY.search(word[0])), None)
    return value if secret is None else value[: secret.end()] + HIDDEN


def has_secret(line: str) -> bool:
    """Whether a line has a password, so that none of its words is shown."""
    words = ((word.partition("=")[2] or word).lstrip('"') for word in line.split()[:-1])
    return (
        any(mark in line for mark in ("://", "@"))
        or any(word.startswith("/") for word in words)  # the options of a program may follow
        or _OF_KEY.search(line) is not None
    )


def _meaning(kind: str, key: str, text: str) -> object:
    if (kind, key) in TIMES | TIMES_IN_SECONDS:
        try:
            return (minutes if (kind, key) in TIMES else seconds)(text)
        except ValueError:
            return text.lower()
    text = text.replace("job_container/", "namespace/").rstrip(
        "/"
    )  # the name before 25.11; the end of a path
    words = sorted(_YES_NO.get(word.strip().lower(), word.strip().lower()) for word in text.split(","))
    return tuple(words)


def _spellings(kind: str) -> dict[str, str]:
    return catalog.slurm_key_names(kind)
