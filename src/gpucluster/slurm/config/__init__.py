"""Plan to Slurm's files: slurm.conf, gres.conf, cgroup.conf, topology.conf, and the head's hosts lines."""
