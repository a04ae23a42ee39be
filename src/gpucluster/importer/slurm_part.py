"""The part `slurm` of a spec: what a site sets for the whole cluster."""

from pydantic import TypeAdapter

from gpucluster import catalog
from gpucluster.importer.extra import extra_of
from gpucluster.importer.hardware import threads_as_one
from gpucluster.importer.lines import FileLine
from gpucluster.importer.made import Reasons
from gpucluster.importer.memory import memory_of_threads, why_of_threads
from gpucluster.importer.pools import takes
from gpucluster.importer.site import JOB_CONTAINER, Setting, Site
from gpucluster.importer.write_yaml import Value
from gpucluster.spec.fields import LicenseName
from gpucluster.spec.rules.extra_values import of_value

MOST_LICENSES = 1_000_000
_OF_LICENSE: TypeAdapter[str] = TypeAdapter(LicenseName)


def slurm_of(site: Site, version: str, reasons: Reasons) -> dict[str, Value]:
    made: dict[str, Value] = {"version": version}
    made |= _private_tmp(site)
    made["node_ssh"] = False
    if "jobrequeue" in site.cluster and site.cluster["jobrequeue"].value == "0":
        made["requeue"] = False
    if licenses := _licenses(site):
        made["licenses"] = licenses
    limits = {"enforcepartlimits": Setting("NO", FileLine("", 0), "EnforcePartLimits")}  # Slurm's own
    threads = max(map(threads_as_one, site.nodes.values()), default=1)
    memory = memory_of_threads(site.cluster, threads)
    reasons |= {("slurm.conf", "", key): why_of_threads(key, threads) for key in memory}
    extra = extra_of("slurm.conf", [{**limits, **site.cluster, **memory}])
    kept = {key: value for key, old in extra.items() if (value := _right_words(version, key, old, reasons))}
    return {**made, **({"extra": kept} if kept else {})}


def _private_tmp(site: Site) -> dict[str, Value]:
    plugin, base = site.cluster.get("namespacetype"), site.others.get(JOB_CONTAINER, {}).get("basepath")
    if plugin is None or not plugin.value.endswith("tmpfs") or (base and base.value.lower() == "none"):
        return {"private_tmp": False}
    return {"private_tmp": {"path": base.value}} if base else {}


def _right_words(version: str, key: str, value: str, reasons: Reasons) -> str:
    """The words of a list that this version takes, with the reason for each other one."""
    facts, low = catalog.slurm_facts(version), key.lower()
    words = value.split(",")
    if of_value(facts, "slurm.conf", low, value) is None or (len(words) == 1 and key not in facts.tokens):
        return value
    wrong = {
        word: found[1] for word in words if (found := of_value(facts, "slurm.conf", low, word)) is not None
    }
    if not wrong:  # two words that exclude each other: the rules say it
        return value
    reasons["slurm.conf", "", low] = f"not imported: {'; '.join(wrong.values())}"
    return ",".join(word for word in words if word not in wrong)


def _licenses(site: Site) -> dict[str, Value]:
    """The licences with a count and a name that a spec takes."""
    if "licenses" not in site.cluster:
        return {}
    found = (word.strip().partition(":") for word in site.cluster["licenses"].value.split(","))
    return {
        name: int(count or 1)
        for name, _, count in found
        if takes(_OF_LICENSE, name) and (count or "1").isdecimal() and 0 < int(count or 1) <= MOST_LICENSES
    }
