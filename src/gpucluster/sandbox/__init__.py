"""The rehearsal: a stand-in for AWS on one Linux machine, with real machines, Pulumi and Slurm."""
