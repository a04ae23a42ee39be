"""The plan as Pulumi resources. Components take plain plan values and Outputs, and make no decisions.

`program.declare` declares everything. The same program runs on AWS, in the sandbox and in tests. Only this room imports
pulumi_aws.
"""
