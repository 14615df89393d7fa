"""Inside: try to connect to each place given; report those that could be reached."""

from __future__ import annotations

import json
import socket

TIMEOUT_S = 2.0


def reach(family: str, address: str, port: int) -> bool:
    """Tell whether anything answers there, or can be sent to."""
    try:
        if family == "name":
            return bool(socket.getaddrinfo(address, port))
        domain = {"inet": socket.AF_INET, "udp": socket.AF_INET, "inet6": socket.AF_INET6}.get(family, socket.AF_UNIX)
        kind = socket.SOCK_DGRAM if family == "udp" else socket.SOCK_STREAM
        with socket.socket(domain, kind) as sock:
            sock.settimeout(TIMEOUT_S)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.connect(address if domain == socket.AF_UNIX else (address, port))
            if family == "udp":
                sock.send(b"anybody")
                sock.recv(1)
    except OSError:
        return False
    return True


(places,) = globals()["ARGUMENTS"]
print(json.dumps([place for place in places if reach(*place)]))
