"""A substitute for Pulumi's AWS provider: one table of resource types over boto3.

Check rejects types and properties that are not in the table; the provider never ignores one.
`schema` defines a row, `table` lists the rows, `check` and `diff` are pure, `calls` calls the cloud, and `servicer`
implements the engine's protocol. Endpoint, region and keys come from the environment; the state has none of them.
"""
