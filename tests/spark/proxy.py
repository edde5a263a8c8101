"""A TCP proxy before a broker that breaks connections on demand: what a network does at the worst moment."""

import selectors
import socket
import threading


class Proxy:
    """Listens on a free port of 127.0.0.1. On the control port a line says what is to happen, once:

    cut: every connection breaks now
    lose: every connection breaks when its next answer comes, which is lost; what was asked has been done
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._control = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.control_port: int = self._control.getsockname()[1]
        self.broken = 0
        self._target = ("127.0.0.1", 0)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._doomed: set[socket.socket] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        for each in (self._listener, self._control):
            self._selector.register(each, selectors.EVENT_READ)
        self._thread.start()

    def stop(self) -> None:
        self._ended = True
        self._thread.join(10)
        for each in (*self._peers, self._listener, self._control):
            each.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    self._accept()
                elif sock is self._control:
                    self._obey()
                elif sock in self._peers:
                    self._forward(sock)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            broker = socket.create_connection(self._target, 2)
        except OSError:
            client.close()
            return
        for sock, peer in ((client, broker), (broker, client)):
            self._peers[sock] = peer
            self._selector.register(sock, selectors.EVENT_READ)
        self._clients.add(client)

    def _obey(self) -> None:
        control, _ = self._control.accept()
        with control:
            how = control.recv(64).strip()
            if how == b"cut":
                for client in list(self._clients):
                    self._close(client)
            else:
                self._doomed |= self._clients
            control.sendall(b"!")

    def _forward(self, sock: socket.socket) -> None:
        peer = self._peers[sock]
        try:
            data = sock.recv(1 << 18)
            if not data or peer in self._doomed:
                self._close(sock)
            else:
                peer.sendall(data)
        except OSError:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self.broken += 1
        for each in (sock, self._peers[sock]):
            self._selector.unregister(each)
            del self._peers[each]
            self._clients.discard(each)
            self._doomed.discard(each)
            each.close()
