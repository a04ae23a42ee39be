"""A stand-in of kubectl over the file of `state`. It refuses flags that the real one does not have, kinds that are not served, objects in
a missing namespace, and a stale resourceVersion. It plays the controllers: their status comes after as many reads as the test says."""

import copy
import json
import marshal
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support.cluster.controllers import Controllers
from support.cluster.pods import execute
from support.cluster.state import BUILT_IN, CLUSTER_SCOPED, OF_CHARTS, OWN_EACH, Begun, fail, stored

Object = dict[str, Any]


_REVIEW = """Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts"""


def run(begun: Begun) -> tuple[str, str]:
    """Return the problem, or empty, and what it prints."""
    with begun.state.locked() as values:
        if begun.verb != "config view":
            _require_context(values, begun.flags)
        return Server(values).call(begun.verb, begun.words, begun.flags, begun.stdin)


def _require_context(values: Object, flags: dict[str, str]) -> None:
    if flags.get("context") not in [row["name"] for row in values["config"]["contexts"]]:
        fail(f'error: context "{flags.get("context")}" does not exist')


class Server(Controllers):
    """The API server, its objects by `apiVersion|kind|namespace|name`."""

    def call(self, verb: str, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        self.collect()  # the controllers work between two calls, too
        return getattr(self, f"_{verb.replace(' ', '_')}")(words, flags, stdin)

    def served(self) -> dict[str, list[str]]:
        found = {version: list(kinds) for version, kinds in BUILT_IN.items()}
        late = self.values["unserved"]
        for release in {*self.values["crds"]}:
            for version, kinds in OF_CHARTS[release].items():
                found.setdefault(version, []).extend(kind for kind in kinds if not late.get(kind))
        return found

    def _config_view(self, *_: Any) -> tuple[str, str]:
        return "", json.dumps(self.values["config"])

    def _version(self, *_: Any) -> tuple[str, str]:
        return "", json.dumps({"clientVersion": {}, "serverVersion": self.values["version"]})

    def _get(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        if "raw" in flags:
            return self._raw(flags["raw"])
        if flags.get("output") != "json":
            return "the stand-in prints JSON only", ""
        if words:
            return self._find(words[0], flags)
        wanted, problem = self._known(_items(stdin))
        if problem:
            return problem, ""
        found = [_shown(self.read(key), flags) for one in wanted if (key := _key(one)) in self.objects]
        if len(found) < len(wanted) and "ignore-not-found" not in flags:
            return "Error from server (NotFound): one of the objects not found", ""
        return "", _print(found, single=len(found) == 1)

    def _raw(self, path: str) -> tuple[str, str]:
        if path == "/metrics":
            return "", self.values["metrics"]
        if path == "/apis":
            groups: dict[str, list[str]] = {}
            for one in self.served():
                if "/" in one:
                    groups.setdefault(one.partition("/")[0], []).append(one)
            made = [
                {
                    "name": name,
                    "versions": [{"groupVersion": v, "version": v.partition("/")[2]} for v in found],
                }
                for name, found in groups.items()
            ]
            return "", json.dumps({"kind": "APIGroupList", "apiVersion": "v1", "groups": made})
        version = path.removeprefix("/apis/").removeprefix("/api/")
        late = self.values["unserved"]
        kinds = self.served().get(version)
        for kind in [kind for kind, left in late.items() if left]:
            late[kind] -= 1
        if kinds is None:
            return "Error from server (NotFound): the server could not find the requested resource", ""
        rows = [
            {
                "name": f"{kind.lower()}s{part}",
                "kind": kind,
                "namespaced": kind not in CLUSTER_SCOPED,
                "verbs": ["get"] if part else ["get", "list"],
            }
            for kind in kinds
            for part in ("", "/status")
        ]
        return "", json.dumps({"kind": "APIResourceList", "groupVersion": version, "resources": rows})

    def _find(self, types: str, flags: dict[str, str]) -> tuple[str, str]:
        found: list[Object] = []
        for word in types.split(","):
            kind, version, group = word.split(".", 2)
            api_version = f"{group}/{version}" if group else version
            if kind not in self.served().get(api_version, []):
                return f'error: the server doesn\'t have a resource type "{kind.lower()}"', ""
            keys = [
                key
                for key, one in self.objects.items()
                if key.startswith(f"{api_version}|{kind}|") and _matches(one, flags)
            ]
            found += [_shown(self.read(key), flags) for key in sorted(keys)]
        return "", _print(found, single=False) or json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": []}
        )

    def _apply(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        dry = flags.get("dry-run") == "server"
        items, problem = self._known(
            _kustomized(Path(flags["kustomize"])) if "kustomize" in flags else _items(stdin)
        )
        found, problems = [], [problem] if problem else []
        for one in items:
            refused = (
                self._forbidden(one)
                or self._refusal(one)
                or self._unknown_field(one)
                or self._conflict(one, flags)
            )
            if refused:
                problems.append(refused)
            elif one["kind"] == "CustomResourceDefinition":
                self._define(one, flags["field-manager"])
                found.append(one)
            else:
                found.append(_shown(self._applied(one, flags, dry=dry), flags))
        if problems:
            return "\n".join(problems), ""
        if flags.get("output") == "json":
            return "", _print(found, single=len(found) == 1)
        return "", "\n".join(
            f"{one['kind'].lower()}/{one['metadata']['name']} serverside-applied" for one in found
        )

    def _create(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        (one,) = _items(stdin)
        if _key(one) in self.objects:
            name = one["metadata"]["name"]
            return (
                f'Error from server (AlreadyExists): error when creating "STDIN": {one["kind"].lower()}s "{name}" already exists',
                "",
            )
        if refused := self._refusal(one):
            return refused, ""
        return "", json.dumps(_shown(self._stored(one, flags), flags))

    def _replace(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        (one,) = _items(stdin)
        there, name = self.objects.get(_key(one)), one["metadata"]["name"]
        if there is None:
            return (
                f'Error from server (NotFound): error when replacing "STDIN": {one["kind"].lower()}s "{name}" not found',
                "",
            )
        version = one["metadata"].get("resourceVersion")
        if version not in (None, there["metadata"]["resourceVersion"]):
            return (
                f'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on {one["kind"].lower()}s'
                f' "{name}": the object has been modified; please apply your changes to the latest version and try again',
                "",
            )
        return "", json.dumps(_shown(self._stored(one, flags), flags))

    def _delete(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        items, problem = self._known(_items(stdin))
        for one in items:
            there = self.objects.get(_key(one))
            if there is None and "ignore-not-found" not in flags:
                problem = f'Error from server (NotFound): {one["kind"].lower()}s "{one["metadata"]["name"]}" not found'
            elif there is not None:
                there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.collect()
        return problem, ""

    def _exec(self, words: list[str], flags: dict[str, str], stdin: str) -> tuple[str, str]:
        name, *argv = words
        pod = self.objects.get(f"v1|Pod|{flags['namespace']}|{name}")
        if pod is None:
            return f'Error from server (NotFound): pods "{name}" not found', ""
        code, text = execute(self.objects, self.values["exec"], pod, argv)
        return f"{text}\ncommand terminated with exit code {code}" if code else "", "" if code else text

    def _known(self, items: list[Object]) -> tuple[list[Object], str]:
        served = self.served()
        missing = [one for one in items if one["kind"] not in served.get(one["apiVersion"], [])]
        if missing:
            known = [one for one in items if one not in missing]
            return known, "\n".join(_unmatched(one) for one in missing)
        for one in items:
            scoped = "namespace" not in one["metadata"]
            assert scoped == (one["kind"] in CLUSTER_SCOPED), (
                f"{one['kind']} is {'not ' * scoped}of the cluster"
            )
        return items, ""

    def _refusal(self, one: Object) -> str:
        namespace, name = one["metadata"].get("namespace"), one["metadata"]["name"]
        if namespace and namespace != "kube-system":
            there = self.objects.get(f"v1|Namespace||{namespace}")
            if there is None:
                return f'Error from server (NotFound): namespaces "{namespace}" not found'
            if "deletionTimestamp" in there["metadata"] and _key(one) not in self.objects:
                return (
                    f'Error from server (Forbidden): {one["kind"].lower()}s "{name}" is forbidden: unable to create new content'
                    f" in namespace {namespace} because it is being terminated"
                )
        if name in self.values["invalid"]:
            return (
                f'The {one["kind"]} "{name}" is invalid: spec: Invalid value: {self.values["invalid"][name]}'
            )
        return ""

    def _forbidden(self, one: Object) -> str:
        """Refuse a patch of a kind that the user may not patch, in the words of RBAC."""
        resource = self.values["forbidden"].get(one["kind"])
        if resource is None:
            return ""
        group, place = one["apiVersion"].rpartition("/")[0], one["metadata"].get("namespace")
        where = f'in the namespace "{place}"' if place else "at the cluster scope"
        named = (
            f'{resource}.{group} "{one["metadata"]["name"]}"'
            if group
            else f'{resource} "{one["metadata"]["name"]}"'
        )
        return f'Error from server (Forbidden): {named} is forbidden: User "ann" cannot patch resource "{resource}" in API group "{group}" {where}'

    def _owned_by_helm(self, one: Object, flags: dict[str, str]) -> str:
        """Return the conflict of a changed definition without --force-conflicts: helm has set its fields."""
        if one["kind"] != "CustomResourceDefinition" or "force-conflicts" in flags:
            return ""
        marks = one["metadata"]["annotations"]
        if self.values["crds"].get(marks["of"], marks["at"]) == marks["at"]:
            return ""
        return f'error: Apply failed with 1 conflict: conflict with "helm" using apiextensions.k8s.io/v1: .spec.versions\n{_REVIEW}'

    def _define(self, one: Object, manager: str) -> None:
        """Take the definitions of a chart from what its `helm show crds` printed."""
        marks = one["metadata"]["annotations"]
        self.values["crds"][marks["of"]] = marks["at"]
        self.objects[_key(one)] = stored(one, manager, annotations=marks)

    def _unknown_field(self, one: Object) -> str:
        """Refuse an object of a chart whose definitions are of another version: a field of it may be missing there."""
        for row in self.values["releases"]:
            name, kinds = row["name"], OF_CHARTS[row["name"]].get(one["apiVersion"], [])
            at = self.values["crds"].get(name)
            if (
                one["kind"] in kinds
                and at is not None
                and row["chart"] not in (f"{name}-{at}", "rolled-back", "")
            ):
                version = one["apiVersion"].rpartition("/")[2]
                return (
                    f'Error from server (BadRequest): error when creating "STDIN": {one["kind"]} in version "{version}" cannot be handled'
                    f' as a {one["kind"]}: strict decoding error: unknown field "spec.newer"'
                )
        return ""

    def _conflict(self, one: Object, flags: dict[str, str]) -> str:
        """Return the conflict of an apply with a field that another manager has set; --force-conflicts takes the field."""
        owned = self.values["owned"].get(_key(one), [])
        if owned and "force-conflicts" in flags:
            del self.values["owned"][_key(one)]
        elif len(owned) == 1:
            ((manager, field),) = owned
            return f"error: Apply failed with 1 conflict: conflict with {manager}: {field}\n{_REVIEW}"
        elif owned:
            lines = [
                line for manager, field in owned for line in (f"conflicts with {manager}:", f"- {field}")
            ]
            return f"error: Apply failed with {len(owned)} conflicts: {chr(10).join(lines)}\n{_REVIEW}"
        return ""

    def _applied(self, one: Object, flags: dict[str, str], *, dry: bool) -> Object:
        there = self.objects.get(_key(one))
        wanted = _merged(there, one) if there else copy.deepcopy(one)
        if there is not None and _plain(wanted) == _plain(there):
            return there
        return wanted if dry else self._stored(wanted, flags)

    def _stored(self, one: Object, flags: dict[str, str]) -> Object:
        self.values["clock"] += 1
        there = self.objects.get(_key(one), {"metadata": {}})
        metadata = {**one["metadata"], "resourceVersion": str(self.values["clock"])}
        metadata["generation"] = there["metadata"].get("generation", 0) + 1
        metadata["creationTimestamp"] = there["metadata"].get("creationTimestamp", "2026-11-25T12:00:00Z")
        metadata["uid"] = there["metadata"].get("uid", f"uid-{self.values['clock']}")
        managers = [row["manager"] for row in there["metadata"].get("managedFields", [])]
        metadata["managedFields"] = [
            {"manager": name} for name in sorted({*managers, flags["field-manager"]})
        ]
        made = {**one, "metadata": metadata}
        self.objects[_key(one)] = made
        return made


def _shown(one: Object, flags: dict[str, str]) -> Object:
    """Return what kubectl prints: the managers of the fields only on request."""
    if "show-managed-fields" in flags:
        return one
    return {**one, "metadata": {k: v for k, v in one["metadata"].items() if k != "managedFields"}}


def _unmatched(one: Object) -> str:
    name, place = one["metadata"]["name"], one["metadata"].get("namespace", "")
    what = f'no matches for kind "{one["kind"]}" in version "{one["apiVersion"]}"'
    return f'error: resource mapping not found for name: "{name}" namespace: "{place}" from "STDIN": {what}\nensure CRDs are installed first'


def _items(text: str) -> list[Object]:
    if not text.lstrip().startswith("{"):
        return marshal.loads(_parsed(text))  # noqa: S302  our own
    found = json.loads(text)
    return found["items"] if found["kind"] == "List" else [found]


@cache
def _parsed(text: str) -> bytes:
    """The documents of a text, which most calls have in common, to be loaded by marshal: each call changes its own. Empty ones are left out, as by the real one."""
    return marshal.dumps([one for one in yaml.load_all(text, yaml.CSafeLoader) if one], OWN_EACH)


def _kustomized(folder: Path) -> list[Object]:
    (names,) = _items((folder / "kustomization.yaml").read_text())
    assert set(names) == {"apiVersion", "kind", "resources"}, names
    return [one for name in names["resources"] for one in _items((folder / name).read_text())]


def _print(found: list[Object], *, single: bool) -> str:
    if single:
        return json.dumps(found[0])
    return (
        json.dumps({"apiVersion": "v1", "kind": "List", "items": found, "metadata": {"resourceVersion": ""}})
        if found
        else ""
    )


def _key(one: Object) -> str:
    metadata = one["metadata"]
    return "|".join((one["apiVersion"], one["kind"], metadata.get("namespace", ""), metadata["name"]))


def _plain(one: Object) -> Object:
    server = (
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
    )
    return {**one, "metadata": {k: v for k, v in one["metadata"].items() if k not in server}}


def _merged(there: Object, one: Object) -> Object:
    """Server-side apply by one manager: what it sets is set; lists of the manifest replace those that are there."""
    made = copy.deepcopy(there)
    for key, value in one.items():
        mapping = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merged(made[key], value) if mapping else value
    return made


def _matches(one: Object, flags: dict[str, str]) -> bool:
    if "namespace" in flags and one["metadata"].get("namespace") != flags["namespace"]:
        return False
    field, _, name = flags.get("field-selector", "").partition("=")
    assert field in ("", "metadata.name"), f"the stand-in does not know the field {field}"
    if field and one["metadata"]["name"] != name:
        return False
    marks = one["metadata"].get("labels", {})
    pairs = [pair.partition("=") for pair in flags.get("selector", "").split(",") if pair]
    return all(key in marks and (not equals or marks[key] == value) for key, equals, value in pairs)
