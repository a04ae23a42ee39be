"""Values for every key of `extra`: those that `check` accepts are given to the real programs, all of a round at once.

A round has at most one value of each key. `Trials.problems` gives the rendered files of a round to slurmd and slurmctld; if
they report an error, `culprits` halves the round until single settings are left.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from real_slurm import FOR_SLURMD, RealSlurm, adapted, errors_of
from support.builders import a_lab_text
from support.waiting import eventually

from gpucluster import catalog
from gpucluster.catalog.slurm_values import Number, OneOf, Plugins, Words, slurm_values
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.spec import inspect_text

# Below, at and above the types of Slurm's parser; words, lists, times, paths, signs, other bases.
ANY = (
    "0", "1", "2", "4", "30", "100", "1000", "65535", "65536", "4294967295", "4294967296", "18446744073709551615",
    "99999999999999999999", "INFINITE", "1.5", "nonsense", "yes", "none", "ALL", "/x/y", "/etc/hosts", "a:b", "-1", "010",
    "08", "0x10", "4k", "1-0", "12:00:00", "1:2:3:4", "99999999-0", "cpu=1", "cpu=x", "cpu=.5,mem=1.g", "foo=1", "1-3", "9-1", "1,2",
)  # fmt: skip
PLACES = {"slurm.conf": ("slurm",), "node": ("pools", 0), "partition": ("partitions", 0)}
BLIND = ("slurmctlddebug", "slurmctldsyslogdebug")  # a silent slurmctld reports nothing
ADAPTED = ("taskpluginparam",)  # its words need TaskPlugin, which the laboratory leaves out for slurmd
# What has to exist on the head: the one value that this laboratory has.
EXISTING = {
    "mailprog": "/usr/bin/true", "slurmctldprimaryonprog": "/usr/bin/true", "slurmctldprimaryoffprog": "/usr/bin/true",
    "slurmschedlogfile": "/var/log/slurm/sched.log", "allowgroups": "root",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Setting:
    """One key of `extra` with a value."""

    kind: str
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}={self.value}"


def settings(version: str) -> list[Setting]:
    """Every key that the version knows, with every candidate."""
    return [
        Setting(kind, key.name, value)
        for kind in PLACES
        for low, key in catalog.slurm_keys()[kind].items()
        if version in key.known_in
        for value in (
            (EXISTING[low],) if low in EXISTING else dict.fromkeys((*ANY, *_own(version, kind, low)))
        )
    ]


def _own(version: str, kind: str, low: str) -> Iterator[str]:
    """The bounds and words of the key's own form, each word of its list, and its plugins."""
    key = catalog.slurm_keys()[kind][low]
    form = slurm_values().form(kind, low, key.type)
    facts = catalog.slurm_facts(version)
    if isinstance(form, Number):
        yield from (str(form.least), str(form.most), str(form.most + 1))
    if isinstance(form, OneOf | Words):
        yield from form.words
    if isinstance(form, Plugins):
        yield from (plugin for plugin in facts.plugins if plugin.startswith(f"{form.kind}/"))
    for word in sorted(facts.tokens.get(key.name, ())) if kind == "slurm.conf" else ():
        yield word
        numbers = slurm_values().word_range(key.name, word)
        yield from (f"{word}={number}" for number in numbers or ())
        yield from (
            f"{word}={number}" for number in ((numbers[0] - 1, numbers[1] + 1) if numbers else ("x", "1"))
        )


def accepted(version: str) -> list[Setting]:
    """The settings that `check` accepts, each beside at most one value of every other key."""
    return [setting for one in rounds(settings(version)) for setting in accepted_of(version, one)]


def accepted_of(version: str, chosen: Sequence[Setting]) -> list[Setting]:
    """Those that `check` accepts together."""
    left = list(chosen)
    while refused := _refused(version, left):
        left = [one for one in left if one not in refused]
    return left


def rounds(every: Sequence[Setting]) -> Iterator[list[Setting]]:
    """Groups with at most one value of a key."""
    left = list(every)
    while left:
        of: dict[tuple[str, str], Setting] = {}
        for one in left:
            of.setdefault((one.kind, one.key), one)
        chosen = set(of.values())
        yield sorted(chosen)
        left = [one for one in left if one not in chosen]


def _text(version: str, chosen: Sequence[Setting]) -> str:
    of = {kind: json.dumps({one.key: one.value for one in chosen if one.kind == kind}) for kind in PLACES}
    return a_lab_text(
        ('version: "26.05"', f'version: "{version}"\n  extra: {of["slurm.conf"]}'),
        ('"192.0.2.[11-14]"}', f'"192.0.2.[11-14]", extra: {of["node"]}}}'),
        ("default: true}", f"default: true, extra: {of['partition']}}}"),
    )


def _refused(version: str, chosen: Sequence[Setting]) -> set[Setting]:
    found = inspect_text(_text(version, chosen), "lab.yaml", catalog.load())
    named = set[Setting]()
    for problem in found.errors:
        match = re.fullmatch(r"(slurm|pools|partitions)(?:\[.*?\])?\.(extra|remove)\.(\w+)", problem.path)
        assert match is not None, str(problem)
        kind = {"slurm": "slurm.conf", "pools": "node", "partitions": "partition"}[match[1]]
        hit = {one for one in chosen if (one.kind, one.key) == (kind, match[3])}
        assert hit, str(problem)
        named |= hit
    return named


# slurmctld says so where it is ended at its start, the last two on a busy machine (src/slurmctld/controller.c)
OF_ITS_END = ("agent_fini: left", "Locks left set", "Semaphores still set after flushing RPCs")


@dataclass
class Trials:
    """Starts of the real programs of one version on the rendered files of a spec."""

    slurm: RealSlurm

    def of_slurmd(self, chosen: Sequence[Setting]) -> list[str]:
        """The errors of `slurmd -G`."""
        seen = [one for one in chosen if one.key.lower() not in ADAPTED]
        self._write(accepted_of(self.slurm.version, seen), FOR_SLURMD)
        done = self.slurm.gres_of("gpu01")
        return errors_of(done.err) or ([] if done.code == 0 else [done.err[-300:]])

    def of_slurmctld(self, chosen: Sequence[Setting]) -> list[str]:
        """The errors of slurmctld until it runs, and of its end."""
        slurm = self.slurm
        seen = [one for one in chosen if one.key.lower() not in BLIND]
        self._write(accepted_of(slurm.version, seen), "/etc/slurm")
        log = slurm.path("/var/log/slurm/slurmctld.log")
        out = slurm.path("/var/log/slurm/slurmctld.out.log")
        for path in (log, out):
            path.unlink(missing_ok=True)
        process = slurm.spawn("/usr/sbin/slurmctld", "-D", "-c", user="slurm")

        def told() -> str:
            return "".join(path.read_text(errors="replace") for path in (log, out) if path.exists())

        eventually(
            "slurmctld runs or has ended",
            lambda: process.poll() is not None or "Running as primary" in told(),
        )

        def ended() -> bool:
            """Once in thousands of trials slurmctld went on for ten minutes after one signal."""
            if process.poll() is None:
                slurm.run("pkill", "--exact", "slurmctld")  # it may have ended by itself
            return process.poll() is not None

        eventually("slurmctld has ended", ended, picture=lambda: f"{seen}\n{told()}")
        return [line for line in errors_of(told()) if not any(words in line for words in OF_ITS_END)]

    def _write(self, chosen: Sequence[Setting], folder: str) -> None:
        spec = inspect_text(_text(self.slurm.version, chosen), "lab.yaml", catalog.load()).result()
        plan = resolve(spec, catalog.load())
        assert isinstance(plan, SlurmOnHosts)
        files = {
            a.path.removeprefix("slurm/"): a.content.decode()
            for a in render(plan)
            if a.path.startswith("slurm/")
        }
        for name, text in adapted(files, nodes=folder == FOR_SLURMD).items():
            self.slurm.write(f"{folder}/{name}", text)


def culprits(
    chosen: Sequence[Setting], problems: Callable[[Sequence[Setting]], list[str]]
) -> dict[Setting, list[str]]:
    """The settings that the program refuses alone, and what it says; a pair that only clashes together is named by both."""
    said = problems(chosen)
    if not said:
        return {}
    if len(chosen) == 1:
        return {chosen[0]: said}
    half = len(chosen) // 2
    found = culprits(chosen[:half], problems) | culprits(chosen[half:], problems)
    return found or dict.fromkeys(chosen, said)
