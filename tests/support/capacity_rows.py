"""Errors of capacity, termination and budget in a spec: sentence, changes, the only expected problem.

The spec is `builders.SPEC` in us-east-1, where machines have prices, without the one machine that has none.
"""

from support.builders import SPEC

Change = tuple[str, str]

PRICED = SPEC.replace("us-east-2", "us-east-1").replace(", p5e.48xlarge", "")

CAPACITY_ROWS: list[tuple[str, list[Change], str]] = [
    (
        "a source that was bought ahead and has no id",
        [
            (
                "from: on-demand, machines: [p5en.48xlarge], max: 4",
                "from: reservation, zones: [us-east-1a], machines: [p5en.48xlarge]",
            )
        ],
        "18:9: error[missing-key] pools[h200].capacity[1]: 'id' is missing: the id of a reservation, cr-…",
    ),
    (
        "a block without an id",
        [
            ("nodes: {min: 0, max: 16}", "nodes: 4"),
            (
                "from: spot, machines: [p5en.48xlarge]",
                "from: capacity-block, zones: [us-east-1a], machines: [p5en.48xlarge]",
            ),
        ],
        "17:9: error[missing-key] pools[h200].capacity[0]: 'id' is missing: the id of a capacity block, cr-…",
    ),
    (
        "an id of another thing",
        [("from: on-demand,", "from: on-demand, id: i-0123456789abcdef0,")],
        "18:31: error[bad-reservation] pools[h200].capacity[1].id: 'i-0123456789abcdef0' is not the id of a reservation: cr- and 17 digits of 0-9 and a-f, such as cr-0123456789abcdef0",
    ),
    (
        "an id with a letter too much",
        [("from: on-demand,", "from: on-demand, id: cr-0123456789abcdefg,")],
        "18:31: error[bad-reservation] pools[h200].capacity[1].id: 'cr-0123456789abcdefg' is not the id of a reservation: cr- and 17 digits of 0-9 and a-f, such as cr-0123456789abcdef0",
    ),
    (
        "an id where nothing was bought",
        [("from: on-demand,", "from: on-demand, id: cr-0123456789abcdef0,")],
        "18:31: error[not-here] pools[h200].capacity[1].id: 'id' belongs to a reservation or a capacity block; this source is on-demand",
    ),
    (
        "one reservation twice in a pool",
        [
            (
                "- {from: spot, machines: [p5en.48xlarge]}",
                "- {from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}",
            ),
            (
                "{from: on-demand, machines: [p5en.48xlarge], max: 4}",
                "{from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}",
            ),
        ],
        "18:33: error[repeated] pools[h200].capacity[1].id: 'cr-0123456789abcdef0' is already the source capacity[0] of this pool",
    ),
    (
        "a reservation of two machine types",
        [
            (
                "from: spot, machines: [p5en.48xlarge]",
                "from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge, p5e.48xlarge]",
            )
        ],
        "17:86: error[one-machine] pools[h200].capacity[0].machines: a reservation has one machine type, found 2",
    ),
    (
        "a reservation in two zones",
        [
            (
                "from: on-demand, machines: [p5en.48xlarge], max: 4",
                "from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a, us-east-1b], machines: [p5en.48xlarge]",
            )
        ],
        "18:62: error[one-zone] pools[h200].capacity[1].zones: a reservation is in one zone, found 2",
    ),
    (
        "a reservation somewhere in the network",
        [
            (
                "from: on-demand, machines: [p5en.48xlarge], max: 4",
                "from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge]",
            )
        ],
        "18:9: error[missing-key] pools[h200].capacity[1]: 'zones' is missing: a reservation is in one zone, and the network has us-east-1a, us-east-1b",
    ),
    (
        "a capacity block on an elastic pool",
        [
            (
                "from: on-demand, machines: [p5en.48xlarge], max: 4",
                "from: capacity-block, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]",
            )
        ],
        "18:16: error[elastic-block] pools[h200].capacity[1].from: a capacity block is prepaid, so its pool has a fixed size: write `nodes: 16`; found min 0, max 16",
    ),
    (
        "a machine that no block is sold of",
        [
            ("nodes: {min: 0, max: 16}", "nodes: 4"),
            (
                "- {from: spot, machines: [p5en.48xlarge]}\n      - {from: on-demand, machines: [p5en.48xlarge], max: 4}",
                "- {from: capacity-block, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [g6e.48xlarge]}",
            ),
        ],
        "17:90: error[machine-not-sold] pools[h200].capacity[0].machines[0]: 'g6e.48xlarge' is not offered in capacity blocks (catalog of 2026-11-21)",
    ),
    (
        "a price without a unit",
        [("from: spot,", "from: spot, max_price: 40,")],
        "17:33: error[no-unit] pools[h200].capacity[0].max_price: 40 has no unit; write 40 USD/h or 31.50 USD/h",
    ),
    (
        "a price by another time",
        [("from: spot,", "from: spot, max_price: 40 USD/d,")],
        "17:33: error[bad-amount] pools[h200].capacity[0].max_price: '40 USD/d' is not an amount in USD; write 40 USD/h or 31.50 USD/h",
    ),
    (
        "a price in another currency",
        [("from: spot,", "from: spot, max_price: 40 EUR/h,")],
        "17:33: error[bad-amount] pools[h200].capacity[0].max_price: '40 EUR/h' is not an amount in USD; write 40 USD/h or 31.50 USD/h",
    ),
    (
        "a price of nothing",
        [("from: spot,", "from: spot, max_price: 0 USD/h,")],
        "17:33: error[out-of-range] pools[h200].capacity[0].max_price: 0 USD/h is not above 0 and at most 100000 USD",
    ),
    (
        "a price for what has a list price",
        [("from: on-demand,", "from: on-demand, max_price: 40 USD/h,")],
        "18:38: error[not-here] pools[h200].capacity[1].max_price: 'max_price' is for spot machines only; this source is on-demand",
    ),
    (
        "a price above the list",
        [
            (
                "from: spot, machines: [p5en.48xlarge]",
                "from: spot, machines: [p5en.48xlarge], max_price: 80 USD/h",
            )
        ],
        "17:60: warning[price-no-limit] pools[h200].capacity[0].max_price: 80 USD/h has no effect: spot costs at most the on-demand price, 63.296 USD/h",
    ),
    (
        "spares that are no number",
        [("idle: 5m", "idle: 5m\n    spares: two")],
        "16:13: error[bad-type] pools[h200].spares: expected a whole number, found 'two'",
    ),
    (
        "fewer spares than none",
        [("idle: 5m", "idle: 5m\n    spares: -1")],
        "16:13: error[out-of-range] pools[h200].spares: -1 is not between 0 and 10000",
    ),
    (
        "more spares than the pool has beside its always-on nodes",
        [("{min: 0, max: 16}", "{min: 14, max: 16}"), ("idle: 5m", "idle: 5m\n    spares: 3")],
        "16:13: error[spares-above-max] pools[h200].spares: 3 spares and 14 always-on nodes are more than max 16",
    ),
    (
        "a signal that nobody traps",
        [("idle: 5m", "idle: 5m\n    termination: {signal: KILL}")],
        "16:27: error[bad-signal] pools[h200].termination.signal: 'KILL' is not a signal for a batch script; one of USR1, USR2, TERM, INT, HUP",
    ),
    (
        "a signal with its prefix",
        [("idle: 5m", "idle: 5m\n    termination: {signal: SIGUSR1}")],
        "16:27: error[bad-signal] pools[h200].termination.signal: 'SIGUSR1' is not written as a signal; did you mean 'USR1'?",
    ),
    (
        "a signal by number",
        [("idle: 5m", "idle: 5m\n    termination: {signal: 10}")],
        "16:27: error[bad-signal] pools[h200].termination.signal: 10 is a signal's number; write its name: USR1, USR2, TERM, INT, HUP",
    ),
    (
        "a lead longer than the notice",
        [("idle: 5m", "idle: 5m\n    termination: {lead: 2m}")],
        "16:25: error[lead-too-long] pools[h200].termination.lead: 2m is too long: a spot notice comes 120 s before the end, and the script has half of this time; write at most 60s",
    ),
    (
        "a lead that leaves the script a second, and that no spot notice could keep",
        [("idle: 5m", "idle: 5m\n    termination: {lead: 119s}")],
        "16:25: error[lead-too-long] pools[h200].termination.lead: 119s is too long: a spot notice comes 120 s before the end, and the script has half of this time; write at most 60s",
    ),
    (
        "a lead just above half of a spot notice",
        [("idle: 5m", "idle: 5m\n    termination: {lead: 61s}")],
        "16:25: error[lead-too-long] pools[h200].termination.lead: 61s is too long: a spot notice comes 120 s before the end, and the script has half of this time; write at most 60s",
    ),
    (
        "a grace of hours",
        [("idle: 5m", "idle: 5m\n    termination: {grace: 2h}")],
        "16:26: error[out-of-range] pools[h200].termination.grace: 2h is not between 1s and 1h",
    ),
    (
        "a script with arguments",
        [("idle: 5m", "idle: 5m\n    termination: {script: /opt/site/leave --now}")],
        "16:27: error[bad-path] pools[h200].termination.script: '/opt/site/leave --now' is not an absolute path of A-Z, a-z, 0-9, '.', '_' and '-', such as /data",
    ),
    (
        "a script by a relative path",
        [("idle: 5m", "idle: 5m\n    termination: {script: leave.sh}")],
        "16:27: error[bad-path] pools[h200].termination.script: 'leave.sh' is not an absolute path of A-Z, a-z, 0-9, '.', '_' and '-', such as /data",
    ),
    (
        "hung after nothing",
        [("idle: 5m", "idle: 5m\n    job_heartbeat: {requeue: true}")],
        "16:20: error[missing-key] pools[h200].job_heartbeat: 'after' is missing: a job that does not touch its file for this long is reported as hung; write `after: 30m`",
    ),
    (
        "hung after a second",
        [("idle: 5m", "idle: 5m\n    job_heartbeat: {after: 1s}")],
        "16:28: error[out-of-range] pools[h200].job_heartbeat.after: 1s is not between 1m and 30d",
    ),
    (
        "a breaker that breaks at once",
        [("idle: 5m", "idle: 5m\n    breaker: {boots: 0}")],
        "16:22: error[out-of-range] pools[h200].breaker.boots: 0 is not between 1 and 100",
    ),
    (
        "a breaker that breaks for good",
        [("idle: 5m", "idle: 5m\n    breaker: {cooldown: 30d}")],
        "16:25: error[out-of-range] pools[h200].breaker.cooldown: 30d is not between 1m and 1d",
    ),
    (
        "a budget without an amount",
        [("partitions:\n", "budget: {warn_at: 80%}\npartitions:\n")],
        "19:9: error[missing-key] budget: 'monthly' is missing: budget of a calendar month: `250000 USD`",
    ),
    (
        "a budget by the hour",
        [("partitions:\n", "budget: {monthly: 40 USD/h}\npartitions:\n")],
        "19:19: error[bad-amount] budget.monthly: '40 USD/h' is not an amount in USD; write 250000 USD or 1999.50 USD",
    ),
    (
        "a budget as a bare number",
        [("partitions:\n", "budget: {monthly: 250000}\npartitions:\n")],
        "19:19: error[no-unit] budget.monthly: 250000 has no unit; write 250000 USD or 1999.50 USD",
    ),
    (
        "a part without its sign",
        [("partitions:\n", "budget: {monthly: 250000 USD, warn_at: 80}\npartitions:\n")],
        "19:40: error[no-unit] budget.warn_at: 80 has no unit; write 80%",
    ),
    (
        "a part of more than all",
        [("partitions:\n", "budget: {monthly: 250000 USD, stop_scaling_at: 120%}\npartitions:\n")],
        "19:48: error[out-of-range] budget.stop_scaling_at: 120% is not between 1% and 100%",
    ),
    (
        "a part in words",
        [("partitions:\n", "budget: {monthly: 250000 USD, warn_at: most}\npartitions:\n")],
        "19:40: error[bad-percent] budget.warn_at: 'most' is not a whole percentage; write 80%",
    ),
    (
        "a warning after the stop",
        [("partitions:\n", "budget: {monthly: 250000 USD, stop_scaling_at: 70%}\npartitions:\n")],
        "19:9: error[warn-after-stop] budget.warn_at: the default, 80%, is above the stop at 70%, so no warning would come first; write at most 70%",
    ),
    (
        "a warning after the stop that somebody wrote",
        [
            (
                "partitions:\n",
                "budget: {monthly: 250000 USD, warn_at: 90%, stop_scaling_at: 70%}\npartitions:\n",
            )
        ],
        "19:40: error[warn-after-stop] budget.warn_at: 90% is above the stop at 70%, so no warning would come first; write at most 70%",
    ),
    (
        "one reservation as two things",
        [
            (
                "from: on-demand, machines: [p5en.48xlarge], max: 4",
                "from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]",
            ),
            (
                "partitions:\n",
                "  - name: other\n    nodes: 2\n    capacity: [{from: reservation, id: cr-0123456789abcdef0, zones: [us-east-1b], machines: [p5en.48xlarge]}]\npartitions:\n",
            ),
            ("pools: [h200]", "pools: [h200, other]"),
        ],
        "21:40: error[reservation-differs] pools[other].capacity[0].id: 'cr-0123456789abcdef0' is in pools[h200] a reservation of p5en.48xlarge in us-east-1a: one id has one machine type in one zone",
    ),
    (
        "always-on nodes that no source may give",
        [
            ("{min: 0, max: 16}", "{min: 5, max: 16}"),
            ("      - {from: spot, machines: [p5en.48xlarge]}\n", ""),
        ],
        "17:7: error[sources-below-min] pools[h200].capacity: the sources give at most 4 nodes, and 5 are always on (with spares)",
    ),
    (
        "a budget that the always-on nodes use up",
        [
            ("{min: 0, max: 16}", "{min: 5, max: 16}"),
            ("idle: 5m", "idle: 5m\n    spares: 6"),
            ("partitions:\n", "budget: {monthly: 250000 USD}\npartitions:\n"),
        ],
        "20:19: error[budget-below-least] budget.monthly: the always-on nodes cost 277,236.48 USD a month (730 h at list prices of 2026-02-09), and launches stop at 250,000.00 USD",
    ),
    (
        "a machine that no budget counts",
        [
            (
                "{from: spot, machines: [p5en.48xlarge]",
                "{from: spot, machines: [p5en.48xlarge, p5e.48xlarge]",
            ),
            ("partitions:\n", "budget: {monthly: 250000 USD}\npartitions:\n"),
        ],
        "17:48: warning[no-price] pools[h200].capacity[0].machines[1]: 'p5e.48xlarge' has no price in the catalog of 2026-02-09: its hours do not count, and the budget is partly uncounted",
    ),
    (
        "a budget where nothing has a price",
        [
            ("partitions:\n", "budget: {monthly: 250000 USD}\npartitions:\n"),
            ("{from: spot, machines: [p5en", "{from: spot, machines: [p5e"),
            ("on-demand, machines: [p5en", "on-demand, machines: [p5e"),
        ],
        "19:9: error[budget-without-prices] budget: no machine of Slurm's pools has a price (the catalog has prices of us-east-1): this budget has no effect; remove `budget`, or set `max_price` for spot",
    ),
    (
        "a budget where all is paid ahead",
        [
            ("{min: 0, max: 16}", "4"),
            (
                "      - {from: spot, machines: [p5en.48xlarge]}\n      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n",
                "      - {from: capacity-block, id: cr-0123456789abcdef0, zones: [us-east-1a], machines: [p5en.48xlarge]}\n",
            ),
            ("partitions:\n", "budget: {monthly: 250000 USD}\npartitions:\n"),
        ],
        "18:9: error[budget-without-prices] budget: all machines of Slurm's pools are prepaid, so no hour counts: this budget has no effect",
    ),
]
