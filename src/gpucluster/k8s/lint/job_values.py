"""What the API server, JobSet and LeaderWorkerSet refuse in a job or a set of pods: indexes, policies, names of jobs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import is_subdomain
from gpucluster.k8s.lint.pods import JOBSET
from gpucluster.k8s.lint.tree import Path, along, at, below, entries, items, mapping, text
from gpucluster.text import quoted

_LWS = "LeaderWorkerSet.leaderworkerset.x-k8s.io"
_JOBS: dict[str, Path] = {"Job.batch": ("spec",), "CronJob.batch": ("spec", "jobTemplate", "spec")}
_JOBS_OF_A_SET = ["spec", "replicatedJobs", "*", "template", "spec"]
_MANAGER = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)
_INDEXED = ("backoffLimitPerIndex", "successPolicy")
_TARGETS = ("successPolicy.targetReplicatedJobs.*", "failurePolicy.rules.*.targetReplicatedJobs.*")
_NO_DEADLINE = frozenset({"Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps"})
_LONGEST = 63
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_INDEXES = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*", re.ASCII)
_CAUSES = ("onExitCodes", "onPodConditions")
_WIDEST = 100_000  # pods at once of an Indexed job


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if (way := _JOBS.get(thing.key)) is not None:
            yield from _job(thing, way, mapping(below(thing.body, way)))
        elif thing.key == JOBSET:
            yield from _set(thing)
            for path, job in along(thing.body, _JOBS_OF_A_SET):
                yield from _job(thing, path, mapping(job))
        elif thing.key == _LWS:
            yield from _group(thing)
        elif thing.key in _NO_DEADLINE:
            where = ("spec", "template", "spec", "activeDeadlineSeconds")
            if at(thing.body, *where) is not None:
                yield thing.found("one-of", f"the pods of a {thing.kind} have no end", where)


def _job(thing: Obj, way: Path, spec: Mapping[str, Any]) -> Iterator[Finding]:
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("completions") is None and spec.get("parallelism") is not None:
        yield thing.found("one-of", "an Indexed job needs `completions`", way)
    for field in _INDEXED:
        if spec.get(field) is not None and not indexed:
            yield thing.found("one-of", f"{field} needs completionMode Indexed", (*way, field))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        words = "maxFailedIndexes needs backoffLimitPerIndex"
        yield thing.found("one-of", words, (*way, "maxFailedIndexes"))
    if thing.key == "Job.batch" and spec.get("selector") is not None and not spec.get("manualSelector"):
        yield thing.found(
            "selector", "the server makes the selector: remove it, or set manualSelector", (*way, "selector")
        )
    if spec.get("podFailurePolicy") and spec.get("podReplacementPolicy") == "TerminatingOrFailed":
        words = "podFailurePolicy needs podReplacementPolicy Failed"
        yield thing.found("one-of", words, (*way, "podReplacementPolicy"))
    width = spec.get("parallelism")
    if indexed and type(width) is int and width > _WIDEST:
        yield thing.found("range", f"{width} is above {_WIDEST}", (*way, "parallelism"))
    yield from _manager(thing, way, spec)
    yield from _failures(thing, way, spec)
    yield from _success(thing, way, spec)
    count = spec.get("completions")
    if indexed and thing.key == "Job.batch" and type(count) is int:
        longest = len(f"{thing.name}-{max(count - 1, 0)}")
        if longest > _LONGEST:
            words = f"its pods' names have {longest} characters; the limit is {_LONGEST}"
            yield thing.found("name", words, ("metadata", "name"))


def _manager(thing: Obj, way: Path, spec: Mapping[str, Any]) -> Iterator[Finding]:
    written = spec.get("managedBy")
    domain, slash, rest = text(written).partition("/")
    good = (
        bool(slash) and is_subdomain(domain) and _MANAGER.fullmatch(rest) and len(text(written)) <= _LONGEST
    )
    if isinstance(written, str) and not good:
        words = f"{quoted(written)} is no controller such as example.org/controller, of at most {_LONGEST} characters"
        yield thing.found("name", words, (*way, "managedBy"))


def _failures(thing: Obj, way: Path, spec: Mapping[str, Any]) -> Iterator[Finding]:
    pod = mapping(at(spec, "template", "spec"))
    names = {
        text(at(one, "name")) for part in ("initContainers", "containers") for _, one in entries(pod, part)
    }
    for path, rule in entries(spec, "podFailurePolicy", "rules"):
        where = (*way, *path)
        if at(rule, "action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield thing.found("one-of", "FailIndex needs backoffLimitPerIndex", (*where, "action"))
        codes = mapping(at(rule, "onExitCodes"))
        if len([part for part in _CAUSES if at(rule, part)]) != 1:
            yield thing.found("one-of", f"expected one of {' and '.join(_CAUSES)}", where)
        numbers = [value for value in items(codes.get("values")) if type(value) is int]
        if numbers != sorted(set(numbers)):
            words = "exit codes are given once, in order"
            yield thing.found("range", words, (*where, "onExitCodes", "values"))
        if codes.get("operator") == "In" and 0 in items(codes.get("values")):
            yield thing.found("range", "0 is no failure", (*where, "onExitCodes", "values"))
        if (name := codes.get("containerName")) is not None and text(name) not in names:
            words = f"the pod has no container {quoted(name)}"
            yield thing.found("container", words, (*where, "onExitCodes", "containerName"))


def _success(thing: Obj, way: Path, spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Indexes begin with 0, so the last is one below `completions`."""
    count = spec.get("completions")
    for path, rule in entries(spec, "successPolicy", "rules"):
        written, enough = at(rule, "succeededIndexes"), at(rule, "succeededCount")
        where = (*way, *path)
        if written is None and enough is None:
            yield thing.found("one-of", "expected succeededCount or succeededIndexes", where)
        numbers = [int(number) for number in _NUMBER.findall(text(written))]
        bad = text(written) and (numbers != sorted(set(numbers)) or not _INDEXES.fullmatch(text(written)))
        if bad or (type(count) is int and numbers and numbers[-1] >= count):
            words = f"{quoted(written)} are no indexes of {count} pods, such as 0,2-3, in order"
            yield thing.found("range", words, (*where, "succeededIndexes"))
        elif type(count) is int and type(enough) is int and enough > count:
            yield thing.found("range", f"{enough} is above {count}", (*where, "succeededCount"))


def _set(thing: Obj) -> Iterator[Finding]:
    """As JobSet's webhook: policies and the coordinator name jobs of the set."""
    spec = mapping(thing.body.get("spec"))
    yield from _manager(thing, ("spec",), spec)
    jobs = {text(at(job, "name")): job for _, job in entries(spec, "replicatedJobs")}
    for way in _TARGETS:
        for path, name in along(spec, way.split(".")):
            if text(name) not in jobs:
                yield thing.found("depends-on", f"the set has no job {quoted(name)}", ("spec", *path))
    coordinator = mapping(spec.get("coordinator"))
    if coordinator:
        yield from _coordinator(thing, coordinator, jobs)


def _coordinator(thing: Obj, coordinator: Mapping[str, Any], jobs: Mapping[str, Any]) -> Iterator[Finding]:
    job = jobs.get(text(coordinator.get("replicatedJob")))
    if job is None:
        words = f"the set has no job {quoted(coordinator.get('replicatedJob'))}"
        yield thing.found("depends-on", words, ("spec", "coordinator", "replicatedJob"))
        return
    template = mapping(at(job, "template", "spec"))
    for field, most in (("jobIndex", at(job, "replicas")), ("podIndex", template.get("completions"))):
        number, count = coordinator.get(field, 0), most if type(most) is int else 1
        if type(number) is int and most is not None and number >= count:
            words = f"there is no {field} {number}: the first of {count} is 0"
            yield thing.found("depends-on", words, ("spec", "coordinator", field))


def _group(thing: Obj) -> Iterator[Finding]:
    """As the webhook of LeaderWorkerSet."""
    template = mapping(at(thing.body, "spec", "leaderWorkerTemplate"))
    update = mapping(at(thing.body, "spec", "rolloutStrategy", "rollingUpdateConfiguration"))
    for value, least, where in (
        (template.get("size"), 1, ("spec", "leaderWorkerTemplate", "size")),
        (at(thing.body, "spec", "replicas"), 0, ("spec", "replicas")),
    ):
        if type(value) is int and value < least:
            yield thing.found("range", f"{value} is below {least}", where)
    if update.get("maxSurge", 0) in (0, "0%") and update.get("maxUnavailable") in (0, "0%"):
        where = ("spec", "rolloutStrategy", "rollingUpdateConfiguration")
        yield thing.found(
            "range", "maxSurge and maxUnavailable are both 0: no group could be replaced", where
        )
