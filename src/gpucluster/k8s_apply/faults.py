"""Error texts of kubectl and helm, mapped to error classes: repeat, refused, not found, conflict.

The words are those of kubectl (pkg/cmd/util/helpers.go, StandardErrorMessage and checkErr, v0.37.0-beta.0) and of helm
(pkg/action/action.go, pkg/storage/driver/driver.go, v4.1.0 and v3.18.4). A line decides by the first row that matches. One refused line
refuses the whole call: the same call cannot succeed. Conflicts of fields: apimachinery, pkg/util/managedfields/internal/conflict.go.
"""

import re
from collections.abc import Iterator

from gpucluster.errors import GpuclusterError
from gpucluster.text import printable


class KubernetesError(GpuclusterError):
    """kubectl or helm failed. `text` is all that it said."""

    def __init__(self, message: str, *, text: str = "", next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.text = text or message


class TransientError(KubernetesError):
    """The same call can succeed later: the API server or a webhook is away or busy."""


class HungError(TransientError):
    """kubectl or helm is not done after its time limit. What it asked for may be done."""


class WebhookError(TransientError):
    """A webhook does not answer, for example because its controller does not run: its kinds can be read, and not be changed."""


class UnservedError(TransientError):
    """The server does not serve the kind, or not yet."""


class RefusedError(KubernetesError):
    """The same call cannot succeed."""


class NotFoundError(RefusedError):
    """The object does not exist."""


class ConflictError(RefusedError):
    """Somebody else changed or created the object first: a create or a replace of the same object cannot succeed."""


class FieldConflictError(RefusedError):
    """Another manager has set fields to other values. `owned` are the managers, each with its field."""

    @property
    def owned(self) -> list[tuple[str, str]]:
        return list(_conflicts(self.text))


_ROWS: tuple[tuple[str, type[KubernetesError]], ...] = (
    (r"getting credentials|executable \S+ not found", RefusedError),  # the kubeconfig's program, such as `aws`
    (r"no matches for kind|the server doesn't have a resource type|resource mapping not found", UnservedError),
    (r"the server could not find the requested resource", UnservedError),
    (r"failed calling webhook", WebhookError),
    (r"\((InternalError|Timeout|ServerTimeout|TooManyRequests|ServiceUnavailable)\)", TransientError),
    (r"\(Expired\)|continue parameter is too old", TransientError),  # the rest of a long list; kubectl asks for 500 at a time
    (r"conversion webhook for .* failed|no endpoints available for service", TransientError),
    (r"because it is being terminated|status unknown for quota|not yet ready to handle request", TransientError),
    (r"\(AlreadyExists\)|object has been modified|cannot reuse a name that is still in use", ConflictError),
    (r"\(NotFound\)|release: not found", NotFoundError),
    (r"Apply failed with \d+ conflict", FieldConflictError),
    (r"\((Invalid|BadRequest|Forbidden|Unauthorized|Conflict|MethodNotAllowed)\)", RefusedError),
    (r"is invalid|must be logged in|Proxy Authentication Required|: Forbidden$|x509|certificate", RefusedError),
    (r"^The connection to the server .* was refused|Unable to connect to the server", TransientError),
    (r"connection refused|connection reset|i/o timeout|TLS handshake timeout|unexpected EOF|: EOF", TransientError),
    (r"no such host|context deadline exceeded|http2: client connection lost", TransientError),
    (r"Client\.Timeout exceeded|GOAWAY|stream error: stream ID|connection timed out|broken pipe", TransientError),
    (r"no route to host|network is unreachable|server misbehaving", TransientError),
    (r"etcdserver|Kubernetes cluster unreachable|the server is currently unable", TransientError),
    (r"response status code (429|5\d\d)|unexpected status.*(429|5\d\d)|failed to fetch \S+ : (429|5\d\d)", TransientError),
)  # fmt: skip
_LOGIN = (  # client-go, plugin/pkg/client/auth/exec/exec.go, and kubectl, pkg/cmd/util/helpers.go
    (re.compile(r"exec: executable \S+ not found"), "install the program that the kubeconfig names: for EKS the AWS CLI, version 2"),
    (re.compile(r"getting credentials"), "log in again, and look who you are: aws sts get-caller-identity"),
    (re.compile(r"must be logged in|\(Unauthorized\)"), "look who you are: aws sts get-caller-identity. This role or user needs an access entry of the EKS cluster:"
     " name it in kubernetes.admins or in members of a team, then `pulumi up`"),
)  # fmt: skip
_OF_ONE_STATE = ("kubectl create", "kubectl replace")
_TABLE = tuple((re.compile(words), fault) for words, fault in _ROWS)
_HINTS = re.compile(
    r"^(Warning: |E\d{4} |ensure CRDs are installed|Please review|are the ways you can resolve|value\.|See https?:|I\d{4} |W\d{4} |level=|\* (If|You may) |  )"
)


def fault_of(what: str, text: str) -> KubernetesError:
    """Return the error of a failed call. Words that no row knows are a refusal: a repeat could hide them.

    `what`: program and command, such as `kubectl apply`. Only a create or a replace says which state it begins with; any other call can be
    repeated after a conflict. The API server itself repeats a patch five times (apiserver, pkg/endpoints/handlers/patch.go).
    """
    lines = [line for line in text.splitlines() if line.strip() and not _HINTS.match(line)] or [text.strip()]
    found = [_row(line) for line in lines]
    if what not in _OF_ONE_STATE:
        found = [TransientError if fault is ConflictError else fault for fault in found]
    decisive = next((fault for fault in found if issubclass(fault, RefusedError)), found[0])
    step = next((step for words, step in _LOGIN if words.search(text)), None)
    return decisive(f"{what}: {printable(' '.join(lines[:4]), 1000)}", text=text, next_step=step)


_CONFLICT = re.compile(r'conflicts? with "([^"]*)".*?:(?: (\.\S.*))?$')
_FIELD = re.compile(r"^- (\..*)$")


def _conflicts(text: str) -> Iterator[tuple[str, str]]:
    """Yield manager and field of each conflict. One is a line; of more, each manager has a line, and each field one below it."""
    manager = ""
    for line in text.splitlines():
        if found := _CONFLICT.search(line):
            manager = printable(found[1])
            if found[2]:
                yield manager, printable(found[2])
        elif manager and (field := _FIELD.match(line)):
            yield manager, printable(field[1])


def _row(line: str) -> type[KubernetesError]:
    for words, fault in _TABLE:
        if words.search(line):
            return fault
    return RefusedError
