"""The exit codes that are not a program's own, as shells and `timeout` use them."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_SERVICE = 3
EXIT_REFUSED = 4
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
EXIT_KILLED = 137
EXIT_BROKEN_PIPE = 141
