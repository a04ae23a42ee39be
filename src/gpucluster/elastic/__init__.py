"""The fleet: one daemon owns every instance that Slurm schedules.

hook -> spool -> keeper: look (scontrol, cloud) -> decide (pure) -> act (journal first) -> look again.
`memory` is what is remembered, a fold of the events in `journal`; `model` is what is seen and what may be done;
`registration` tells nodes who they are; `waiter` is PrologSlurmctld; `daemon` is the edge (threads, clock, sockets);
`timeline` reads a job's story from the journal.
A new rule is a function in `decide/` over `World`; a new fact is an event in `events` with its fold in `memory`; a new step is an
action in `model` with its case in `act`. A new refusal of the cloud is a row in `cloud/faults.py`.
"""
