"""Values in a file that look like secrets: logs and reports must not show the lines that hold them."""

import re

from gpucluster.spec.host_fields import holds_private_key

SECRET_VALUE = re.compile(  # the forms of Hugging Face, GitHub, GitLab, AWS, NVIDIA, Slack, OpenAI, of a JWT and of a key file
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|A(?:KIA|SIA)[A-Z0-9]{16}"
    r"|nvapi-[\w-]{20,}|xox[abprs]-[\w-]{10,}|sk-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)|-----BEGIN [A-Z ]*PRIVATE KEY"
)


def holds_secret(text: str) -> bool:
    """Return whether a text holds a private key, or a value of a known form of secrets."""
    return holds_private_key(text) or SECRET_VALUE.search(text) is not None
