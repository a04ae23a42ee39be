"""The plan as Pulumi resources. Components take plain plan values and Outputs, and decide nothing.

`program.declare` is the whole; the same program runs on AWS, in the sandbox and in tests. pulumi_aws is
imported here and nowhere else.
"""
