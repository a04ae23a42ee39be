"""The stand-in for Pulumi's AWS provider: one table of resource types over boto3.

What is not in the table is refused by name in Check; nothing succeeds in silence.
`schema` says what a row is, `table` lists the rows, `check` and `diff` are pure, `calls` speaks to the cloud,
`servicer` is the engine's protocol. The endpoint, region and keys come from the environment: none stands in state.
"""
