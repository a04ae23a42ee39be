"""The health programs of a node: Slurm's HealthCheckProgram, and the health part of Prolog and Epilog. Standard library only."""
