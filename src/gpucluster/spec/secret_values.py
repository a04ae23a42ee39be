"""Values in a file that look like secrets: logs and reports must not show the lines that hold them."""

import re

from gpucluster.spec.host_fields import holds_private_key

SECRET_VALUE = re.compile(  # the forms of Hugging Face, GitHub, GitLab, AWS, NVIDIA, Slack, OpenAI, of a JWT and of a key file
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|A(?:KIA|SIA)[A-Z0-9]{16}"
    r"|nvapi-[\w-]{20,}|xox[abprs]-[\w-]{10,}|sk-[\w-]{20,}|eyJ(?:(?!\beyJ)[\w-]){10,}\.eyJ[\w-]{10,}\.[\w-]+)|-----BEGIN [A-Z ]*PRIVATE KEY"
)
HARMLESS = re.compile(
    r"|.{1,4}|/.*|.*\$\(.*|.*\$\{.*|.*\{\{.*|<.*>|https?://[^@]*|(?i:true|false|your.*|change.?me.*|replace.*|example.*|dummy.*|.*placeholder.*|password|secret|x+)",
    re.DOTALL,
)
_ADDRESS = re.compile(r"\w://[^/\s:@$]*:([^@/\s]{3,})@")
_NETRC = re.compile(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(\S{8,})", re.ASCII)
_WEBHOOK = re.compile(r"hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{16,}", re.ASCII)
_OPTION = re.compile(
    r"(?<![\w-])--(?:[\w-]+-)?(?:password|passwd|api-key|secret-key|access-key|auth-token|hf-token|access-token)=(\S{5,})",
    re.ASCII,
)
LONGEST = 2**16  # characters of a value that is searched


def holds_secret(text: str) -> bool:
    """Return whether a text holds a private key, or a value of a known form of secrets."""
    return holds_private_key(text) or SECRET_VALUE.search(text) is not None


def is_secret(value: str) -> bool:
    """Return whether a value is a secret by its form, also inside of an address."""
    if len(value) > LONGEST:
        return False
    given = (form.search(value) for form in (_ADDRESS, _NETRC))
    known = SECRET_VALUE.search(value) or _WEBHOOK.search(value)
    return known is not None or any(one and not HARMLESS.fullmatch(one[1]) for one in given)


def is_secret_option(text: str) -> bool:
    """Return whether an argument has a secret by the name of its option: `--api-key=VALUE`."""
    found = _OPTION.search(text[:LONGEST])
    return found is not None and not HARMLESS.fullmatch(found[1])
