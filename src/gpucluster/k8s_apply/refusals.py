"""Which file, which object and which field of the spec a refusal of the API server is about."""

import re
from collections.abc import Iterator, Sequence

from gpucluster.errors import GpuclusterError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import some
from gpucluster.k8s_apply.faults import FieldConflictError, KubernetesError, RefusedError
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import Ref, ref_of
from gpucluster.k8s_apply.steps import WaveStep, spec_field


def explained(error: RefusedError, wave: WaveStep, access: Access) -> GpuclusterError:
    """Return the refusal with the file, the object and the field of the spec that it is about."""
    if isinstance(error, FieldConflictError):
        return _conflict(error, wave, access)
    found = [one for one in wave.objects if _names(error.text, one)]
    found = found or [one for one, _ in _asked(access, wave)]
    lines = [f"{wave.file_of(ref_of(one))}: {ref_of(one)}" for one in found]
    fields = dict.fromkeys(field for one in found if (field := spec_field(one)))
    about = some(lines) if lines else wave.wave.folder
    step = f"correct {', '.join(fields)} in the spec" if fields else "correct the spec"
    return GpuclusterError(
        f"the API server refuses {about}: {error.message}",
        next_step=f"{step}; what was applied before stays, and the next `up` goes on",
    )


def refused(kubectl: Kubectl, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, RefusedError]]:
    """Yield the objects that the server would refuse, with the error. One refusal fails a call, so halve until it is alone."""
    try:
        kubectl.applied(manifests)
    except RefusedError as error:
        if len(manifests) == 1:
            yield manifests[0], error
            return
        middle = len(manifests) // 2
        yield from refused(kubectl, manifests[:middle])
        yield from refused(kubectl, manifests[middle:])


# apiserver, pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage), and apimachinery, pkg/api/errors (NewForbidden)
_RIGHT = re.compile(
    r'"(?P<name>[^"]+)" is forbidden: User "[^"]*" cannot patch resource "(?P<resource>[a-z0-9-]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


def without_right(error: RefusedError, manifests: Sequence[Manifest]) -> dict[Ref, str]:
    """Return the objects that the user may not patch, each with the name of its resource. A dry run needs the right of an apply."""
    found = {
        (row["group"], row["resource"], row["namespace"] or "", row["name"])
        for row in _RIGHT.finditer(error.text)
    }
    asked = ((one, resource) for one in map(ref_of, manifests) for resource in _resources(one.kind))
    return {
        one: resource
        for one, resource in asked
        if (one.api_version.rpartition("/")[0], resource, one.namespace, one.name) in found
    }


def _resources(kind: str) -> tuple[str, ...]:
    """Return what the resource of a kind can be called: a plural in small letters."""
    word = kind.lower()
    return f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies"


def owners(error: RefusedError) -> str:
    """Return who has set which fields, for people; empty for an error of another kind."""
    owned = error.owned if isinstance(error, FieldConflictError) else []
    return some([f"{manager} has set {field}" for manager, field in owned])


def _conflict(error: FieldConflictError, wave: WaveStep, access: Access) -> GpuclusterError:
    """Return the conflict with the objects, the managers and their fields. kubectl's words name no object."""
    found = [(one, why) for one, why in _asked(access, wave) if isinstance(why, FieldConflictError)]
    lines = [f"{wave.file_of(ref_of(one))}: {ref_of(one)}: {owners(why)}" for one, why in found]
    about = some(lines, 10) if lines else f"{wave.wave.folder}: {owners(error)}"
    return GpuclusterError(
        f"others have set fields that the spec sets to other values: {about}; they are not changed",
        next_step="to set them as the spec says: repeat it with --force-conflicts; to keep them: change the spec",
    )


def _asked(access: Access, wave: WaveStep) -> list[tuple[Manifest, RefusedError]]:
    """Ask the server about each object, where its words name none. Nothing changes."""
    try:
        return list(refused(access.kubectl, wave.objects))
    except KubernetesError:
        return []  # the first refusal is what people must read


def _names(text: str, one: Manifest) -> bool:
    """Return whether kubectl's words are about the object: they have its kind and its name."""
    name = re.escape(one["metadata"]["name"])
    return one["kind"].lower() in text.lower() and bool(re.search(rf"(?<![\w.-]){name}(?![\w.-])", text))
