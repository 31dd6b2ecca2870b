"""A way to the gateway on which responses come over WebSockets only.

Codex falls back to POST when it cannot have a WebSocket. Here such a request is refused, so that an
answer proves the WebSocket.
"""

import socket
import threading
from urllib.parse import urlsplit

REFUSED = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def sockets_only(url):
    """Returns an address that leads to that of a gateway, for as long as the process lives."""
    to = urlsplit(url)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(listener, (to.hostname, to.port)), daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def accept(listener, to):
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=serve, args=(peer, to), daemon=True).start()


def serve(peer, to):
    """Serves one request, or one WebSocket."""
    with peer, socket.create_connection(to) as gateway:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = peer.recv(65536)
            if not piece:
                return
            head += piece
        if head.startswith(b"POST /v1/responses "):
            peer.sendall(REFUSED)
            return
        if b"upgrade: websocket" not in head.lower():
            # A second request of the connection would go unseen.
            head = head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        gateway.sendall(head)
        threading.Thread(target=copy, args=(peer, gateway), daemon=True).start()
        copy(gateway, peer)


def copy(source, sink):
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
