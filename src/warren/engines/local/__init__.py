"""The embedded engine: namespaces, cgroups and a process that forks, on a plain Linux host."""
