"""A package index outside for `packages.py`, in a process of its own: a folder, sent at so many bytes a second."""

from __future__ import annotations

import http.server
import sys
import threading
import time
from functools import partial
from typing import Any

PIECE = 64 << 10


class Paced(http.server.SimpleHTTPRequestHandler):
    """Sends files as fast as a line of this rate carries them."""

    rate = 0

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send one."""
        began, sent = time.monotonic(), 0
        while piece := source.read(PIECE):
            outputfile.write(piece)
            sent += len(piece)
            time.sleep(max(0.0, began + sent / self.rate - time.monotonic()))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
        """Say nothing."""


def main() -> None:
    """Say the port, and serve until the standard input ends."""
    Paced.rate = int(sys.argv[2])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Paced, directory=sys.argv[1]))
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
