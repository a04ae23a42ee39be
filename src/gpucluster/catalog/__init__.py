"""What the world offers: machine types and Slurm versions, as data with a source and a date."""
