"""The elastic daemon: it owns every instance that Slurm schedules.

hook -> spool -> reconciler: observe (scontrol, cloud) -> decide (pure) -> act (journal first) -> observe again.
`memory` is a fold of the events in `journal`; `model` has the observation and the actions;
`registration` gives nodes their names; `waiter` is PrologSlurmctld; `daemon` has the threads, the clock and the sockets;
`inspect` has the read-only programs.
A new rule is a function in `decide/` over `World`. A new fact is an event in `events` with its fold in `memory`. A new step is an
action in `model` with its method in `act`. A new error code of the cloud is a row in `cloud/faults.py`.
"""
