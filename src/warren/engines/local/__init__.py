"""The local engine: namespaces, control groups and a zygote, on a plain Linux host."""
