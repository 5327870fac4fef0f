"""Fault injection: workers, dispatchers and a database under faults, and a checker.

    make chaos DB=postgres SECONDS=60 SEED=7

plan             which faults are injected, and when: drawn from the seed
databases        the three kinds: start, connect, cut off, crash, fill the disk
audit            triggers that record every change of a run's row, in order
journal          one file per actor, one JSON object per line
workload         jobs, limits and schedules as data, for the application and the checker
application      the application under test: jobs and schedules, in two versions
dispatcher       an actor that dispatches, cancels and registers
schema_upgrade   an actor that installs the next release's tables
schedule_pauser  an actor that pauses all schedules at the end
driver           starts the actors, injects the faults, and waits until all runs are finished
checker          reads journals and tables, and reports violations; imports nothing of tickwork
planted_bugs     bugs that the checker must find: each a patch to a copy of the code
"""
