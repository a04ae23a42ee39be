"""The stand-in for `pulumi-language-python`: what the engine asks of a language, so that `pulumi up` can be typed.

Pulumi's own host cannot be had as a module version; this one runs the same `__main__.py` with the Python that runs us.
"""
