"""A command for each of several paths, at one time: a file system that hangs delays no other path.

A process that waits for a dead file server may ignore SIGKILL. So none of them holds the answer's pipe, and each leaves its
output in a file: in the first folder that takes one, because /run or /tmp may be full.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucluster.checks.check import TIMED_OUT, ParseError, Query, QueryOutput
from gpucluster.text import short

ANSWER_S = 8  # a file server that is only busy answers by then
_RUN = f"""\
folder=
for base in /run/ /dev/shm/ /tmp/ /var/tmp/; do
  folder=$(mktemp -d "${{base}}gpucluster-validate.XXXXXX") && (echo x >$folder/x) && break
  rm -rf "$folder"; folder=
done 2>/dev/null
[ -n "$folder" ] || {{ echo "no folder takes a file" >&2; exit 3; }}
rm $folder/x
command=$1; shift; n=0
for path; do
  n=$((n + 1))
  (timeout --signal=KILL {ANSWER_S} $command "$path" >$folder/$n.out 2>&1; echo $? >$folder/$n.new; mv $folder/$n.new $folder/$n.code) \
</dev/null >/dev/null 2>&1 &
done
tries=0
until [ "$(ls $folder | grep -c code)" -eq $n ] || [ $tries -ge {(ANSWER_S + 1) * 5} ]; do sleep 0.2; tries=$((tries + 1)); done
n=0
for path; do
  n=$((n + 1))
  printf '%s\\t%s\\t%s\\n' "$(cat $folder/$n.code 2>/dev/null || echo {TIMED_OUT})" "$path" "$(tail -n 1 $folder/$n.out)"
done
rm -rf $folder
"""
_KILLED = ("124", "137")  # of `timeout`


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAnswer:
    """The last line that the command printed for a path. `late`: it did not end in time."""

    path: str
    code: int
    line: str
    late: bool


def query_each(command: str, paths: Sequence[str]) -> Query:
    """`command` has no quotes; each path becomes its last argument."""
    return Query(argv=("sh", "-c", _RUN, "sh", command, *paths), limit_s=ANSWER_S + 12.0)


def parse_each(got: QueryOutput) -> Iterator[PathAnswer]:
    """The answers, in the order of the paths."""
    for line in got.text().splitlines():
        code, path, said = (*line.split("\t", 2), "", "")[:3]
        if not code.isdecimal() or not path.startswith("/"):
            raise ParseError(f"the answers of file systems have the line {short(line, 80)!r}")
        yield PathAnswer(path=path, code=int(code), line=said, late=code in _KILLED)
