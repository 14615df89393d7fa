"""Operating system mechanisms: the loop, forks, processes, counters."""
