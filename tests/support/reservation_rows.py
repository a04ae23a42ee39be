"""Errors of site reservations in a spec: sentence, changes, the only expected problem. The spec is the lab with two of them."""

from support.builders import LAB

Change = tuple[str, str]

RESERVED = LAB.replace(
    "users:\n",
    """\
  reservations:
    - {name: patch, pools: [h100], start: 2026-12-01T08:00Z, duration: 4h, repeat: weekly, maint: true}
    - {name: course, nodes: "gpu[01-02]", start: 2026-12-01T09:00Z, duration: 2h, repeat: daily, users: [vision], partition: gpu}
    - {name: demo, nodes: gpu01, start: 2026-12-03T11:00Z, duration: 1h, users: [vision]}
users:
""",
    1,
)
_AT = "slurm.reservations"

RESERVATION_ROWS: list[tuple[str, list[Change], str]] = [
    (
        "a start that is no time",
        [("start: 2026-12-03T11:00Z", "start: 2026-12-03 11:00")],
        f"10:41: error[bad-start] {_AT}[demo].start: '2026-12-03 11:00' is not a date and time in UTC such as 2026-12-01T08:00Z",
    ),
    (
        "a start on a day that no month has",
        [("start: 2026-12-03T11:00Z", "start: 2026-02-30T11:00Z")],
        f"10:41: error[bad-start] {_AT}[demo].start: '2026-02-30T11:00Z' is not a date and time in UTC such as 2026-12-01T08:00Z",
    ),
    (
        "a name of capacity blocks",
        [("name: demo", "name: cr-demo")],
        f"10:14: error[reserved-name] {_AT}[cr-demo].name: 'cr-demo' is taken: reservations of capacity blocks begin with 'cr-'; take another name",
    ),
    (
        "a name twice",
        [("name: demo", "name: patch")],
        f"10:14: error[duplicate-name] {_AT}[patch].name: 'patch' is already the name of slurm.reservations[0]",
    ),
    (
        "neither pools nor nodes",
        [("nodes: gpu01, ", "")],
        f"10:7: error[reservation-nodes] {_AT}[demo]: write the nodes that it holds: either `pools` or `nodes`",
    ),
    (
        "an unknown pool",
        [("pools: [h100], start", "pools: [h10], start")],
        f"8:29: error[unknown-pool] {_AT}[patch].pools[0]: 'h10' is not a pool of Slurm; did you mean 'h100'?",
    ),
    (
        "an unknown node",
        [("nodes: gpu01", "nodes: gpu09")],
        f"10:27: error[unknown-node] {_AT}[demo].nodes: 'gpu09' is not a node of Slurm; did you mean 'gpu04'?",
    ),
    (
        "longer than its repetition",
        [("duration: 4h", "duration: 7d")],
        f"8:72: error[reservation-time] {_AT}[patch].duration: 7d is not shorter than the time after which it repeats, 7d: it would never end",
    ),
    (
        "nobody may use it",
        [("duration: 1h, users: [vision]", "duration: 1h")],
        f"10:7: error[reservation-members] {_AT}[demo]: nobody may use it: write `users`, `accounts` or `maint: true`",
    ),
    (
        "an unknown user",
        [("duration: 1h, users: [vision]", "duration: 1h, users: [visio]")],
        f"10:82: error[unknown-user] {_AT}[demo].users[0]: 'visio' is not one of `users`; did you mean 'vision'?",
    ),
    (
        "accounts without accounting",
        [("duration: 1h, users: [vision]", "duration: 1h, accounts: [team]")],
        f"10:84: error[needs-accounting] {_AT}[demo].accounts: accounts need `slurm.accounting`",
    ),
    (
        "an unknown partition",
        [("partition: gpu}", "partition: gpus}")],
        f"9:126: error[unknown-partition] {_AT}[course].partition: 'gpus' is not a partition; did you mean 'gpu'?",
    ),
    (
        "a partition without its nodes",
        [
            ("partition: gpu}", "partition: second}"),
            ('leaf2: "gpu[03-04]"', 'leaf2: "gpu[03-04]", leaf3: gpu09'),
            (
                "partitions:\n",
                "  - {name: two, machine: hgx-h100, hosts: gpu09, addresses: 192.0.2.19}\npartitions:\n  - {name: second, pools: [two]}\n",
            ),
        ],
        f"9:126: error[reservation-partition] {_AT}[course].partition: the partition 'second' does not have the node gpu01 of the reservation",
    ),
    (
        "another kind of repetition",
        [("repeat: daily", "repeat: monthly")],
        f"9:91: error[bad-repeat] {_AT}[course].repeat: 'monthly' is not how often a reservation repeats; expected daily, weekly",
    ),
    (
        "one that meets a daily one two days later",
        [("2026-12-03T11:00Z", "2026-12-03T10:59Z")],
        f"10:7: error[reservation-overlap] {_AT}[demo]: it holds gpu01 at a time when 'course' holds it: move one of them, or take other nodes",
    ),
]
