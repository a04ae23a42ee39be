"""Words of kubectl and helm by what the caller does next. The rows are outputs of the real programs, or texts of their source."""

import pytest

from gpucluster.k8s_apply.faults import (
    ConflictError,
    FieldConflictError,
    KubernetesError,
    NotFoundError,
    RefusedError,
    TransientError,
    UnservedError,
    WebhookError,
    fault_of,
)

ROWS: list[tuple[str, type[KubernetesError]]] = [
    ("The connection to the server 127.0.0.1:9 was refused - did you specify the right host or port?", TransientError),
    ('E1125 19:30:00.543589   16253 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list"\n'
     'error: unable to recognize "STDIN": Get "http://127.0.0.1:9/api?timeout=32s": dial tcp 127.0.0.1:9: connect: connection refused',
     TransientError),
    ('error: error validating "/tmp/x": error validating data: failed to download openapi: Get "http://127.0.0.1:9/openapi/v2?timeout=32s":'
     ' dial tcp 127.0.0.1:9: connect: connection refused; if you choose to ignore these errors, turn validation off with --validate=false',
     TransientError),
    ("Unable to connect to the server: net/http: TLS handshake timeout", TransientError),
    ("Unable to connect to the server: tls: failed to verify certificate: x509: certificate signed by unknown authority", RefusedError),
    ("Unable to connect to the server: getting credentials: exec: executable aws failed with exit code 255", RefusedError),
    ("Unable to connect to the server: Proxy Authentication Required", RefusedError),  # net/http, transport.go: the words of the proxy's status
    ("Unable to connect to the server: Forbidden", RefusedError),
    ("Unable to connect to the server: Bad Gateway", TransientError),
    ("error: You must be logged in to the server (Unauthorized)", RefusedError),
    ('error: context "no" does not exist', RefusedError),
    ("Error from server (InternalError): an error on the server has prevented the request from succeeding", TransientError),
    ('error: resource mapping not found for name: "x" namespace: "" from "STDIN": no matches for kind "A" in version "b/v1"\nensure CRDs are installed first', UnservedError),
    ('error: the server doesn\'t have a resource type "clusterqueues"', UnservedError),
    ("Error from server (NotFound): the server could not find the requested resource", UnservedError),
    ('Error from server (NotFound): namespaces "x" not found', NotFoundError),
    ('Error from server (AlreadyExists): error when creating "STDIN": leases.coordination.k8s.io "x" already exists', ConflictError),
    ('Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on leases.coordination.k8s.io "x": the object has been modified; please apply your changes to the latest version and try again', ConflictError),
    ('error: Apply failed with 1 conflict: conflict with "kubectl-edit" using apps/v1: .spec.replicas\nPlease review the fields above--they currently have other managers.', FieldConflictError),
    ('The ClusterQueue "x" is invalid: spec.cohortName: Invalid value: "A": no', RefusedError),
    ('The Pod "x" is invalid: \n* spec.a: Required value\n* spec.b: Invalid value: "connection refused"', RefusedError),
    ('Warning: unknown field\nError from server (TooManyRequests): slow down', TransientError),
    ('Error from server (Expired): The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.', TransientError),
    ("Error from server (Timeout): a\nError from server (Invalid): b", RefusedError),
    ("Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", RefusedError),
    ("Error: Kubernetes cluster unreachable: Get \"https://x/version\": dial tcp: lookup x: no such host", TransientError),
    ("Error: release: not found", NotFoundError),
    ("Error: UPGRADE FAILED: context deadline exceeded", TransientError),
    # helm wraps the errors of the API server: their reason is not in the text
    ('Error: UPGRADE FAILED: failed to create resource: Internal error occurred: failed calling webhook "mservice.elbv2.k8s.aws": failed to call webhook: Post "https://aws-load-balancer-webhook-service.kube-system.svc:443/mutate-v1-service?timeout=10s": no endpoints available for service "aws-load-balancer-webhook-service"', WebhookError),
    ('Error: INSTALLATION FAILED: failed to create resource: Internal error occurred: failed calling webhook "mdeployment.kb.io": failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate?timeout=10s": tls: failed to verify certificate: x509: certificate signed by unknown authority', WebhookError),
    ('Error from server: conversion webhook for kueue.x-k8s.io/v1beta1, Kind=Workload failed: Post "https://kueue-webhook-service.kueue-system.svc:443/convert?timeout=30s": no endpoints available for service "kueue-webhook-service"', TransientError),
    ('error: unable to recognize "STDIN": Get "https://10.0.0.1/apis?timeout=60s": net/http: request canceled (Client.Timeout exceeded while awaiting headers)', TransientError),
    ('error: http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""', TransientError),
    ('error: unable to recognize "STDIN": Get "https://x.eks.amazonaws.com/api?timeout=32s": dial tcp: lookup x.eks.amazonaws.com on 127.0.0.53:53: server misbehaving', TransientError),
    ('error: unable to recognize "STDIN": Get "https://10.0.0.1/api": dial tcp 10.0.0.1:443: connect: no route to host', TransientError),
    ('Error: looks like "https://x/nvidia" is not a valid chart repository or cannot be reached: failed to fetch https://x/nvidia/index.yaml : 503 Service Unavailable', TransientError),
    ('Error: looks like "https://x/nvidia" is not a valid chart repository or cannot be reached: failed to fetch https://x/nvidia/index.yaml : 403 Forbidden', RefusedError),
    ('Error from server: admission webhook "vclusterqueue.kb.io" denied the request: no', RefusedError),
    ("", RefusedError),
    ("something new", RefusedError),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), ROWS, ids=lambda row: str(row)[:60])
def test_kind_of_fault(text: str, kind: type[KubernetesError]) -> None:
    what = "kubectl replace" if kind is ConflictError else "kubectl apply"
    assert type(fault_of(what, text)) is kind


MODIFIED = 'Operation cannot be fulfilled on clusterqueues.kueue.x-k8s.io "a": the object has been modified; please apply your changes to the latest version and try again'
REVIEW = """Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts"""


@pytest.mark.parametrize(("what", "text"), [
    ("kubectl apply", f"error: {MODIFIED}\n{REVIEW}"),  # kubectl adds it to each conflict (pkg/cmd/apply/apply.go)
    ("kubectl apply", f"Error from server (Conflict): {MODIFIED}"),
    ("kubectl apply", 'Error from server (AlreadyExists): clusterqueues.kueue.x-k8s.io "a" already exists'),
    ("helm upgrade", f"Error: UPGRADE FAILED: {MODIFIED}"),
    ("helm upgrade", "Error: INSTALLATION FAILED: cannot reuse a name that is still in use"),
])  # fmt: skip
def test_conflict_of_a_call_without_a_state_is_repeated(what: str, text: str) -> None:
    """An apply that a controller overtook was a refusal, and ended `k8s up`."""
    assert type(fault_of(what, text)) is TransientError


@pytest.mark.parametrize(("text", "step"), [
    ("Unable to connect to the server: getting credentials: exec: executable aws not found", "install the program"),
    ("Unable to connect to the server: getting credentials: exec: executable aws failed with exit code 255", "log in again"),
    ("error: You must be logged in to the server (the server has asked for the client to provide credentials)", "kubernetes.admins"),
    ("error: You must be logged in to the server (Unauthorized)", "needs an access entry"),
])  # fmt: skip
def test_failed_login_has_a_next_step(text: str, step: str) -> None:
    assert step in (fault_of("kubectl version", text).next_step or "")


def test_refusal_of_an_object_says_nothing_of_a_login() -> None:
    assert fault_of("kubectl apply", "Error from server (Forbidden): no").next_step is None


def test_refusal_beside_a_conflict_is_not_repeated() -> None:
    text = f"error: {MODIFIED}\n{REVIEW}\nError from server (Invalid): b"
    assert type(fault_of("kubectl apply", text)) is RefusedError


SCALED = '"kubectl" with subresource "scale" using apps/v1'
EDITED = '"kubectl-edit" using apps/v1 at 2026-11-25T12:00:00Z'


@pytest.mark.parametrize(("text", "owned"), [
    (f"error: Apply failed with 1 conflict: conflict with {SCALED}: .spec.replicas\nPlease review the fields", [("kubectl", ".spec.replicas")]),
    (f"error: Apply failed with 1 conflict: conflict with {EDITED}: .spec.replicas", [("kubectl-edit", ".spec.replicas")]),
    (f'error: Apply failed with 3 conflicts: conflicts with {SCALED}:\n- .spec.replicas\nconflicts with {EDITED}:\n'
     '- .spec.template.spec.containers[name="server"].image\n- .spec.paused\nPlease review the fields above',
     [("kubectl", ".spec.replicas"), ("kubectl-edit", '.spec.template.spec.containers[name="server"].image'), ("kubectl-edit", ".spec.paused")]),
    ('error: Apply failed with 1 conflict: conflict with "a\x1b[31m" using v1: .data.x', [("a", ".data.x")]),
])  # fmt: skip
def test_conflict_names_managers_and_fields(text: str, owned: list[tuple[str, str]]) -> None:
    found = fault_of("kubectl apply", text)
    assert isinstance(found, FieldConflictError)
    assert found.owned == owned
