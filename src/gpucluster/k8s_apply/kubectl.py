"""kubectl for one context: JSON in and out, and errors by what the caller does next."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import DEFINE
from gpucluster.k8s.waves import FIELD_MANAGER
from gpucluster.k8s_apply import program
from gpucluster.k8s_apply.faults import NotFoundError, RefusedError, UnservedError, fault_of
from gpucluster.k8s_apply.objects import rows, section
from gpucluster.text import short

REQUEST_S = 60  # kubectl's own limit for one request
CALL_S = 600.0  # for all requests of a call
MANAGERS = "--show-managed-fields"  # who has set which field
FORCE = "--force-conflicts"  # an apply takes the fields that others have set
Kind = tuple[str, str]  # apiVersion and kind
_INSTALL = "install it: kubernetes.io/docs/tasks/tools, of the cluster's minor version"
_NUMBER = re.compile(r"[0-9]{1,4}")
_ENDED = re.compile(r"command terminated with exit code (\d+)\n?")
_UNSERVED = re.compile(r'no matches for kind "([^"]+)" in version "([^"]+)"')


def kubeconfig() -> Mapping[str, Any]:
    """Return the kubeconfig that kubectl uses, without its secrets."""
    words = ("kubectl", "config", "view", "--output=json")
    return program.parsed(_run(words, "read the kubeconfig") or "{}", "kubectl config")


class Kubectl:
    """One context of the kubeconfig."""

    def __init__(self, context: str) -> None:
        self.context = context

    def version(self) -> tuple[int, int]:
        """Return major and minor of the server. EKS writes `36+`."""
        text = self._call("version", "--output=json")
        server = section(program.parsed(text, "kubectl version"), "serverVersion")
        found = [_NUMBER.match(str(server.get(key, ""))) for key in ("major", "minor")]
        if found[0] is None or found[1] is None:
            raise RefusedError(f"kubectl version: the server says no version: {short(text, 200)}", text=text)
        return int(found[0][0]), int(found[1][0])

    def served(self, api_version: str) -> frozenset[str]:
        """Return the kinds of an apiVersion that the server serves now."""
        return frozenset(row["kind"] for row in self._listed(api_version))

    def of_cluster(self, api_version: str) -> frozenset[str]:
        """Return the kinds of an apiVersion whose objects have no namespace."""
        rows = self._listed(api_version)
        return frozenset(row["kind"] for row in rows if not row.get("namespaced", False))

    def kinds(self, groups: Sequence[str]) -> list[Kind]:
        """Return the kinds of these API groups that the server lists, each in one version."""
        found: dict[tuple[str, str], Kind] = {}
        for version in sorted(one for one in self._versions() if one.partition("/")[0] in groups):
            for row in self._resources(version):
                if "list" in row["verbs"]:
                    found[version.partition("/")[0], row["kind"]] = (version, row["kind"])
        return sorted(found.values())

    def get(self, wanted: Sequence[Manifest]) -> list[Manifest]:
        """Return those of the objects that exist. A kind that is not served has no objects."""
        left = list(wanted)
        while left:
            try:
                return self._get(left)
            except UnservedError as error:
                unserved = {(version, kind) for kind, version in _UNSERVED.findall(error.text)}
                kept = [one for one in left if (one["apiVersion"], one["kind"]) not in unserved]
                if len(kept) == len(left):
                    raise
                left = kept
        return []

    def find(
        self,
        kinds: Sequence[Kind],
        selector: str = "",
        namespace: str = "",
        name: str = "",
        *flags: str,
    ) -> list[Manifest]:
        """Return the objects of the kinds, in one namespace or in all. A kind that is not served has no objects."""
        place = ("--namespace", namespace) if namespace else ("--all-namespaces",)
        match = ("--selector", selector) if selector else ()
        match += (f"--field-selector=metadata.name={name}",) if name else ()
        match += flags

        def call(some: Sequence[Kind]) -> list[Manifest]:
            types = ",".join(_type(kind) for kind in some)
            return _objects(self._call("get", types, *place, *match, "--output=json"))

        try:
            return call(kinds) if kinds else []
        except UnservedError:
            versions = self._versions()
        left = [kind for kind in kinds if kind[0] in versions]
        return _apart(left, call) if left else []

    def read(self, *words: str) -> str:
        """Return what a command prints. The words are those after `kubectl`; they change nothing."""
        return self._call(*words)

    def execute(self, namespace: str, pod: str, argv: Sequence[str], limit_s: float) -> tuple[int, str]:
        """Run a program in a pod, and return its exit code and what it prints. HungError: it is not done after `limit_s`."""
        words = ("exec", "--namespace", namespace, pod, "--", *argv)
        done = program.run(self._argv(*words), install=_INSTALL, limit_s=limit_s)
        ended = _ENDED.search(done.stderr)
        if done.code == 0 or ended is not None:
            said = _ENDED.sub("", done.stderr)
            return int(ended[1]) if ended else done.code, f"{said}{done.stdout}".strip()
        raise fault_of("kubectl exec", done.stderr or done.stdout)

    def apply(self, folder: Path, *flags: str) -> None:
        """Apply a folder with its kustomization.yaml. FieldConflictError: others have set a field, and FORCE is no flag."""
        self._call("apply", *_APPLY, *flags, "--kustomize", str(folder))

    def define(self, definitions: str) -> None:
        """Apply the CustomResourceDefinitions of a chart, over those that helm has installed."""
        self._call(*DEFINE[1:], stdin=definitions)

    def applied(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Return what the objects would be after an apply. Nothing changes."""
        if not manifests:
            return []
        words = ("apply", *_APPLY, "--dry-run=server", "--output=json", "--filename", "-")
        return _objects(self._call(*words, stdin=_list(manifests)))

    def create(self, manifest: Manifest) -> Manifest:
        """Create an object; ConflictError if it exists."""
        words = ("create", f"--field-manager={FIELD_MANAGER}", "--output=json", "--filename", "-")
        return program.parsed(self._call(*words, stdin=json.dumps(manifest)), "kubectl create")

    def replace(self, manifest: Manifest) -> Manifest:
        """Replace an object; ConflictError if its resourceVersion is not the newest."""
        words = ("replace", f"--field-manager={FIELD_MANAGER}", "--output=json", "--filename", "-")
        return program.parsed(self._call(*words, stdin=json.dumps(manifest)), "kubectl replace")

    def delete(self, manifests: Sequence[Manifest]) -> None:
        """Ask for the deletion of objects; they go when their finalizers allow it. Objects that are gone are no error."""
        if manifests:
            words = ("delete", "--ignore-not-found", "--wait=false", "--filename", "-")
            self._call(*words, stdin=_list(manifests))

    def _get(self, wanted: Sequence[Manifest]) -> list[Manifest]:
        words = ("get", "--ignore-not-found", "--output=json", "--filename", "-")
        return _objects(self._call(*words, stdin=_list(wanted)))

    def _listed(self, api_version: str) -> list[Manifest]:
        """Return the resources of an apiVersion; none if the server does not serve it."""
        try:
            return self._resources(api_version)
        except (NotFoundError, UnservedError):
            return []

    def _resources(self, api_version: str) -> list[Manifest]:
        """Return the resources of an apiVersion, without subresources such as `pods/log`."""
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        found = program.parsed(self._call("get", "--raw", path), "kubectl get")
        return [row for row in found["resources"] if "/" not in row["name"]]

    def _versions(self) -> frozenset[str]:
        """Return the apiVersions that the server serves."""
        groups = rows(program.parsed(self._call("get", "--raw", "/apis"), "kubectl get"), "groups")
        return frozenset(
            {"v1", *(one["groupVersion"] for group in groups for one in rows(group, "versions"))}
        )

    def _call(self, *words: str, stdin: str | None = None) -> str:
        return _run(self._argv(*words), f"kubectl {words[0]}", stdin)

    def _argv(self, *words: str) -> tuple[str, ...]:
        return ("kubectl", "--context", self.context, f"--request-timeout={REQUEST_S}s", *words)


_APPLY = ("--server-side", f"--field-manager={FIELD_MANAGER}", "--validate=strict")


def _run(argv: Sequence[str], what: str, stdin: str | None = None) -> str:
    return program.output(program.run(argv, install=_INSTALL, limit_s=CALL_S, stdin=stdin), what)


def _apart(items: Sequence[Any], call: Callable[[Sequence[Any]], list[Manifest]]) -> list[Manifest]:
    """Call for all items at once. One of an unknown kind fails the call for all, so halve until it is alone."""
    try:
        return call(items)
    except UnservedError:
        if len(items) == 1:
            return []
    middle = len(items) // 2
    return _apart(items[:middle], call) + _apart(items[middle:], call)


def _type(kind: Kind) -> str:
    """Return `Kind.version.group`, which is never ambiguous. The core group is empty."""
    group, _, version = kind[0].rpartition("/")
    return f"{kind[1]}.{version}.{group}"


def _list(manifests: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def _objects(text: str) -> list[Manifest]:
    """Return the objects of an answer: nothing, one object, or a list."""
    if not text.strip():
        return []
    found: dict[str, Any] = program.parsed(text, "kubectl")
    if "items" in found:
        return rows(found, "items")
    if "kind" not in found:
        raise RefusedError("kubectl printed something other than objects", text=text)
    return [found]
