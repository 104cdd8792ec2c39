"""What the servers of the package share: listening sockets, and the headers of their pages."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from glassbert.errors import InputError

LOCAL = "127.0.0.1"
BACKLOG = 2048
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
# A page may load its own files and ask its own server, and nothing else.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def first_free(ports: Iterable[int], host: str = LOCAL) -> socket.socket | None:
    """A socket that listens on the first of these ports that is free; None if none of them is."""
    for port in ports:
        try:
            return _listen(host, port)
        except OSError:
            continue
    return None


def listen(port: int, host: str = LOCAL, otherwise: str = "give another one") -> socket.socket:
    """A socket that listens on this port, which must be free; 0 is a port of the system's choice."""
    try:
        return _listen(host, port)
    except socket.gaierror as error:
        raise InputError(f"--host {host} is no address of this machine ({error.strerror})") from None
    except OSError as error:
        raise InputError(f"--port {port} cannot be used ({error.strerror}); {otherwise}") from None


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"--port {port} is no port; give a number from 1024 to 65535")
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except BaseException:
        found.close()
        raise
    return found
