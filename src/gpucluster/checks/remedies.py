"""Words that the remedies of several checks have. Pure."""

LOG = "journalctl --no-pager -n 30 -u"  # and a unit
AGENT = f"on {{machine}}: systemctl restart gpucluster-agent; {LOG} gpucluster-agent"
