"""Workers, dispatchers and a database under fault after fault, and a checker that judges.

    make chaos DB=postgres SECONDS=60 SEED=7

plan        which faults are thrown, and when: all of it drawn from the seed
databases   the three kinds: started, cut off, crashed, filled up, connected to
audit       triggers that write down every change of a run's row, in the order it happened
journal     what an actor says: one line of JSON each, in a file of its own
workload    what there is to do, as data: for the shop that does it, and for the checker
shop        the application: jobs, schedules, and two versions of them
dispatching, upgrading, closing    the other actors
driver      starts and harms them, and ends when everything has come to rest
checker     reads journals and tables, and decides; knows nothing of tickwork
planted     bugs to be found: each a patch to a copy of the code
"""
