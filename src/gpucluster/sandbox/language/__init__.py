"""A substitute for `pulumi-language-python`, so that `pulumi up` works in a rehearsal shell.

Pulumi's own host is not available as a Go module version. This host runs the same `__main__.py` with the current Python.
"""
