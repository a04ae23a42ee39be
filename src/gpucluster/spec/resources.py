"""Field types of Kubernetes: names, resources and quantities."""

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.model.values import CPU, IN_MIB
from gpucluster.spec.fields import MAX_NAME, matching, parse_name, parse_text, refuse
from gpucluster.text import Form, quoted

MAX_TEXT = 4096  # for an argument or a variable; longer text belongs in a file

# Namespaces of Kubernetes, of AWS's add-ons and of controllers, by their charts and installation guides. A team has a quota and a
# network policy that closes its namespace, so the programs there would stop.
_TAKEN = frozenset(
    {
        "amazon-cloudwatch",
        "amazon-guardduty",
        "argo-events",
        "argo-rollouts",
        "argocd",
        "aws-observability",
        "calico-apiserver",
        "calico-system",
        "cert-manager",
        "crossplane-system",
        "default",
        "external-dns",
        "external-secrets",
        "flux-system",
        "gatekeeper-system",
        "gpu-operator",
        "ingress-nginx",
        "istio-system",
        "jobset-system",
        "karpenter",
        "knative-eventing",
        "knative-serving",
        "kubeflow-system",
        "kueue-system",
        "kyverno",
        "longhorn-system",
        "lws-system",
        "metallb-system",
        "node-feature-discovery",
        "nvidia-gpu-operator",
        "nvidia-network-operator",
        "rook-ceph",
        "tigera-operator",
        "volcano-system",
    }
)
# A team may have these names, and so may programs that others install.
_SHARED = frozenset(
    {
        "argo",
        "grafana",
        "ingress",
        "keda",
        "kserve",
        "kubeflow",
        "logging",
        "loki",
        "monitoring",
        "observability",
        "prometheus",
        "spark-operator",
        "vault",
        "velero",
    }
)
_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_QUANTITY = Form(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_RESOURCE = Form(r"(?:[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/)?[a-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PROFILE = Form(r"[1-7]g\.[1-9][0-9]{0,2}gb")
_OBJECT = Form(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,3}")
_KEY = Form(r"(?!\.$|\.\.)[A-Za-z0-9._-]{1,253}")  # IsConfigMapKey of apimachinery, also for Secrets
_HTTP_PATH = Form(r"/[A-Za-z0-9._~/?&=%-]{0,199}")
_VARIABLE = Form(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST = (
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,10}(?::[0-9]{1,5})?"
)
_STEP = r"[a-z0-9]+(?:(?:[._]|__|-{1,8})[a-z0-9]+){0,16}"
_IMAGE = Form(
    rf"(?:{_HOST}/)?{_STEP}(?:/{_STEP}){{0,10}}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


def parse_team(value: object) -> str:
    """Parse a team's name, which is also its namespace."""
    name = parse_name(value)
    if name in _TAKEN or name.startswith("kube-"):
        message = f"the namespace '{name}' belongs to Kubernetes or a controller; choose another name"
        raise refuse("reserved-name", message)
    return name


def is_often_a_controllers(team: str) -> bool:
    """Return whether controllers or tools are often in a namespace of this name."""
    return team in _SHARED or team.endswith("-system")


def parse_service_account(value: object) -> str:
    """Parse the name of a service account. Kubernetes makes `default` in every namespace."""
    name = parse_name(value)
    if name == "default":
        raise refuse("reserved-name", "'default' is the account of pods that name none; take another name")
    return name


def parse_quantity(value: object) -> int:
    """Parse a quantity to thousandths: `4` and `4000m` are equal."""
    text = str(value) if type(value) is int else parse_text(value)
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise refuse("bad-quantity", f"{quoted(text)} is not a quantity such as 4, 500m or 16Gi")
    number, suffix = Decimal(found[1]), found[2] or ""
    thousandths = number if suffix == "m" else number * 1000 * _SUFFIXES[suffix]
    if thousandths != int(thousandths):
        raise refuse("bad-quantity", f"{quoted(text)} has more than three decimal places")
    return int(thousandths)


def in_unit(resource: str, thousandths: int) -> int | None:
    """Return the amount in the plan's unit; None if it is not a whole number of units."""
    unit = 1 if resource == CPU else 1000 * 2**20 if resource in IN_MIB else 1000
    return thousandths // unit if thousandths % unit == 0 else None


def parse_image(value: object) -> str:
    text = parse_text(value)
    if len(text) > 512 or not _IMAGE.fullmatch(text):
        raise refuse(
            "bad-image", f"{quoted(text)} is not an image such as registry.example.org/team/name:1.4"
        )
    return text


def parse_line(value: object) -> str:
    """Parse text for an argument or a variable: any printable characters."""
    text = parse_text(value)
    if len(text) > MAX_TEXT or not all(c.isprintable() or c in "\t\n" for c in text):
        raise refuse("bad-text", f"{quoted(text)} has control characters, or is longer than {MAX_TEXT}")
    return text


parse_resource = matching(_RESOURCE, "bad-resource", "a resource such as cpu, memory or nvidia.com/gpu")
parse_profile = matching(_PROFILE, "bad-profile", "a MIG profile such as 1g.10gb")
parse_variable = matching(_VARIABLE, "bad-variable", "a variable's name: use A-Z, a-z, 0-9 and '_'")
parse_object = matching(_OBJECT, "bad-name", "the name of an object: use a-z, 0-9, '-' and '.'")
parse_key = matching(
    _KEY, "bad-key", "a key of a Secret: use A-Z, a-z, 0-9, '-', '_' and '.', and no '..' at the beginning"
)
parse_http_path = matching(_HTTP_PATH, "bad-path", "a path such as /health")
_NAME = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": MAX_NAME}

_TEAM = {**_NAME, "not": {"anyOf": [{"enum": sorted(_TAKEN)}, {"pattern": "^kube-"}]}}

TeamName = Annotated[str, BeforeValidator(parse_team), WithJsonSchema(_TEAM)]
ServiceAccountName = Annotated[
    str, BeforeValidator(parse_service_account), WithJsonSchema({**_NAME, "not": {"const": "default"}})
]
Resource = Annotated[
    str,
    BeforeValidator(parse_resource),
    WithJsonSchema({"type": "string", "pattern": f"^{_RESOURCE.pattern}$", "examples": ["nvidia.com/gpu"]}),
]
Quantity = Annotated[
    int,
    BeforeValidator(parse_quantity),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{_QUANTITY.pattern}$", "examples": ["500m", "16Gi"]},
            ]
        }
    ),
]
Profile = Annotated[
    str,
    BeforeValidator(parse_profile),
    WithJsonSchema({"type": "string", "pattern": f"^{_PROFILE.pattern}$", "examples": ["1g.10gb"]}),
]
ObjectName = Annotated[
    str,
    BeforeValidator(parse_object),
    WithJsonSchema({"type": "string", "pattern": f"^{_OBJECT.pattern}$"}),
]
SecretKeyName = Annotated[
    str, BeforeValidator(parse_key), WithJsonSchema({"type": "string", "pattern": f"^{_KEY.pattern}$"})
]
HttpPath = Annotated[
    str,
    BeforeValidator(parse_http_path),
    WithJsonSchema({"type": "string", "pattern": f"^{_HTTP_PATH.pattern}$"}),
]
Image = Annotated[
    str,
    BeforeValidator(parse_image),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{_IMAGE.pattern}$",
            "maxLength": 512,
            "examples": ["registry.example.org/chat:1.4"],
        }
    ),
]
Variable = Annotated[
    str,
    BeforeValidator(parse_variable),
    WithJsonSchema({"type": "string", "pattern": f"^{_VARIABLE.pattern}$"}),
]
Line = Annotated[str, BeforeValidator(parse_line), WithJsonSchema({"type": "string", "maxLength": MAX_TEXT})]
