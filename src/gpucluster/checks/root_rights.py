"""Check that root is the only user with uid 0, and that only packages, the image and known agents give rights by sudo.

A file that is older than our code in the image was there when the image was built: its inode has not changed since.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.plan import names
from gpucluster.text import Form, short

IMAGE_MADE = f"{names.VENV}/lib/python3*/site-packages/gpucluster-*.dist-info/RECORD"
_SAFE = Form(r"[a-z_][a-z0-9_-]{0,31}")
# sudoers(5): sudo reads no file of the folder whose name has a dot or ends with ~.
_ASK = f"""\
at=
made=$(stat --format=%Z "$at"{IMAGE_MADE} 2>/dev/null | head -n 1)
awk -F: '$3 == 0 {{ print "root " $1 }}' "$at"/etc/passwd
for file in "$at"/etc/sudoers "$at"/etc/sudoers.d/*; do
  [ -f "$file" ] || continue
  case ${{file##*/}} in *.*|*~) continue ;; esac
  path=${{file#"$at"}} state=added
  if package=$(dpkg-query --search "$path" 2>/dev/null); then
    state=packaged
    sum=$(dpkg-query --show --showformat='${{Conffiles}}\\n' "${{package%%[:,]*}}" | awk -v path="$path" '$1 == path {{ print $2 }}')
    [ -z "$sum" ] || echo "$sum  $file" | md5sum --check --status || state=changed
  elif rpm -qf "$path" >/dev/null 2>&1; then state=packaged
  fi
  if [ "$state" != packaged ] && [ "$(stat --format=%Z "$file")" -le "${{made:-0}}" ]; then state=image; fi
  echo "sudo $state $path"
  if [ "$state" = added ]; then sed 's/^/line /' "$file"; echo; fi
done
echo --
"""
_COMMENT = re.compile(r"\s*(#(?!\s*include|[0-9]).*)?")  # #include and #1000 are no comments
# The files of agents, and the only lines that they write there: cloud-init for the image's first user; Session Manager's
# agent ("Turn off or turn on ssm-user account administrative permissions" of its user guide).
_FIRST_USERS = "admin|almalinux|centos|cloud-user|debian|ec2-user|fedora|rocky|ubuntu"
_OF_AGENTS = {
    "/etc/sudoers.d/90-cloud-init-users": re.compile(rf"({_FIRST_USERS}) ALL=\(ALL(:ALL)?\) NOPASSWD: ?ALL"),
    "/etc/sudoers.d/ssm-agent-users": re.compile(r"ssm-user ALL=\(ALL(:ALL)?\) NOPASSWD: ?ALL"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RootWant:
    """`sudo`: whether the rules of sudo are judged; those of an existing host are the site's. `scripts`: the site's own run at boot,
    and what is added may be theirs: a warning.
    """

    sudo: bool
    scripts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SudoFile:
    """A file of sudoers. `state`: packaged, image, changed or added; `lines` of an added one."""

    path: str
    state: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRights:
    """Users with uid 0, and the files of sudoers."""

    users: tuple[str, ...]
    files: tuple[SudoFile, ...]


def query_root(_want: RootWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _ASK), limit_s=30.0),)


def parse_root(got: tuple[QueryOutput, ...]) -> RootRights:
    """`root NAME`, `sudo STATE PATH` with its lines after `line `, and `--` at the end."""
    text = got[0].text()
    if not text.endswith("--\n"):
        raise ParseError("the answer has no end")
    users: list[str] = []
    files: list[SudoFile] = []
    for line in text.splitlines()[:-1]:
        kind, _, rest = line.partition(" ")
        state, _, path = rest.partition(" ")
        if kind == "root" and rest:
            users.append(rest)
        elif kind == "sudo" and path.startswith("/"):
            files.append(SudoFile(path=path, state=state))
        elif kind == "line" and files:
            last = files[-1]
            files[-1] = SudoFile(path=last.path, state=last.state, lines=(*last.lines, rest))
        elif line:
            raise ParseError(f"the answer has the line {short(line, 60)!r}")
    if "root" not in users:
        raise ParseError("/etc/passwd has no root")
    return RootRights(users=tuple(users), files=tuple(files))


def evaluate_root(found: RootRights, want: RootWant) -> CheckResult:
    """Culprits are the users and the files."""
    expected = "root alone has the uid 0" + (", and sudo has the rules of packages and the image" * want.sudo)
    others = tuple(user for user in found.users if user != "root")
    bad = tuple(one for one in found.files if want.sudo and not _is_known(one))
    words = [
        *(f"user {short(user, 40)} has the uid 0, as root" for user in others),
        *(_words(one) for one in bad),
    ]
    if not words:
        return passed(expected)
    remedy = "on {machine}: " + "; ".join((*map(_without_user, others), *map(_undo, bad)))
    if want.scripts and not others:
        return warned(listed(words, 4), expected, remedy)
    return failed(listed(words, 4), expected, (*others, *(one.path for one in bad)), remedy)


def _is_known(one: SudoFile) -> bool:
    if one.state in ("packaged", "image"):
        return True
    allowed = _OF_AGENTS.get(one.path)
    rules = tuple(_rules(one))
    return one.state == "added" and (
        not rules or (allowed is not None and all(map(allowed.fullmatch, rules)))
    )


def _rules(one: SudoFile) -> Iterator[str]:
    return (" ".join(line.split()) for line in one.lines if not _COMMENT.fullmatch(line))


def _words(one: SudoFile) -> str:
    if one.state == "changed":
        return f"{one.path} is not as its package installed it"
    return f"{short(one.path, 80)} is of no package: {short(next(_rules(one)), 80)}"


def _without_user(user: str) -> str:
    """userdel refuses a user whose uid has processes."""
    if not _SAFE.fullmatch(user):
        return "awk -F: '$3 == 0' /etc/passwd"
    return f"sed -i '/^{user}:/d' /etc/passwd /etc/shadow"


def _undo(one: SudoFile) -> str:
    return (
        f"dpkg --verify sudo; visudo -f {one.path}"
        if one.state == "changed"
        else f"rm {shlex.quote(one.path)}"
    )
