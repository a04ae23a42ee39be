"""Secrets as text: in variables, arguments, addresses, ConfigMaps, and in Secrets of a repository."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, parts_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.spec.secret_values import HARMLESS, LONGEST, is_secret, is_secret_option
from gpucluster.text import quoted

_NAME = re.compile(
    r".*PASSWORD|(.*[_.-])?(TOKEN|PASS|PASSWD|PASSPHRASE|SECRET|API[_-]?KEY|ACCESS[_-]?KEY|PRIVATE[_-]?KEY)",
    re.ASCII | re.IGNORECASE,
)
_PASSWORD = re.compile(r".*PASSWORD", re.ASCII | re.IGNORECASE)
_VALUES = {  # kinds with the values of a chart
    "HelmRelease.helm.toolkit.fluxcd.io": ("spec", "values"),
    "Application.argoproj.io": ("spec", "source", "helm", "valuesObject"),
}


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key == "ConfigMap":
            yield from _config(thing)
        elif thing.key == "Secret":
            yield from _secret(thing)
        elif thing.key in _VALUES:
            where = _VALUES[thing.key]
            yield from _values(thing, at(thing.body, *where), where)
        yield from _annotations(
            thing, ("metadata", "annotations"), mapping(at(thing.body, "metadata", "annotations"))
        )
        for pods in parts_of(thing):
            if pods.path:
                yield from _annotations(thing, pods.where("metadata", "annotations"), pods.annotations)
            for path, container in pods.containers():
                yield from _variables(pods, path, container)
                yield from _arguments(pods, path, container)


def _is_named(name: str, value: str) -> bool:
    """Return whether a value is a secret by its name. A text of several lines is a file, and no value."""
    return bool(_NAME.fullmatch(name)) and "\n" not in value.strip() and not HARMLESS.fullmatch(value.strip())


def _annotations(thing: Obj, path: Path, notes: Mapping[str, Any]) -> Iterator[Finding]:
    for key, value in notes.items():
        if is_secret(text(value)):
            words = "holds a secret as text: each reader of the object has it"
            yield thing.warned("literal-secret", words, (*path, key))


def _values(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    """Values of a chart. Their words `secret` and `token` are names of objects as often, so only passwords count."""
    for key, inner in (*mapping(value).items(), *enumerate(items(value))):
        written = text(inner)
        named = _PASSWORD.fullmatch(str(key)) and not HARMLESS.fullmatch(written.strip())
        if is_secret(written) or (named and written):
            words = "holds a secret as text: take the value from a Secret"
            yield thing.warned("literal-secret", words, (*path, key))
        yield from _values(thing, inner, (*path, key))


def _config(thing: Obj) -> Iterator[Finding]:
    for key, value in mapping(thing.body.get("data")).items():
        if is_secret(text(value)) or _is_named(key, text(value)):
            yield thing.warned("literal-secret", "holds a secret as text: use a Secret", ("data", key))


def _secret(thing: Obj) -> Iterator[Finding]:
    """Base64 hides nothing from the readers of a repository. A value without a known form can be made for a test."""
    words = "a Secret of a repository is read by all its readers: let an operator make it (ExternalSecret, SealedSecret)"
    for key, value in mapping(thing.body.get("stringData")).items():
        if is_secret(text(value)):
            yield thing.warned("literal-secret", words, ("stringData", key))
    for key, value in mapping(thing.body.get("data")).items():
        if is_secret(_decoded(text(value))):
            yield thing.warned("literal-secret", words, ("data", key))


def _decoded(value: str) -> str:
    try:
        return b64decode(value[:LONGEST], validate=True).decode(errors="replace")
    except (Error, ValueError):
        return ""


def _variables(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    for inner, variable in entries(container, "env"):
        name, value = text(mapping(variable).get("name")), text(mapping(variable).get("value"))
        if is_secret(value) or _is_named(name, value):
            words = f"{quoted(name)} holds a secret as text: use valueFrom.secretKeyRef"
            yield pods.owner.warned("literal-secret", words, (*path, *inner, "value"))


def _arguments(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    for part in ("command", "args"):
        for inner, word in entries(container, part):
            if is_secret(text(word)) or is_secret_option(text(word)):
                words = "holds a secret as text: use a variable from a Secret"
                yield pods.owner.warned("literal-secret", words, (*path, *inner))
