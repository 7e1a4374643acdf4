"""Network attempts that network.test.ts runs in sandboxes."""

import os
import socket
import threading

_LONG_ENOUGH = 5


def attempt(event, _context):
    return globals()[event["do"]](**event.get("with", {}))


def listen_tcp(host, port):
    """Answers each connection at the end of its input, with the caller's address and the input."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(16)

    def serve():
        while True:
            connection, caller = listener.accept()
            with connection:
                said = b""
                while True:
                    part = connection.recv(65536)
                    if not part:
                        break
                    said += part
                connection.sendall(b"tcp " + caller[0].encode() + b" " + said)

    threading.Thread(target=serve, daemon=True).start()


def listen_udp(host, port):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind((host, port))

    def serve():
        while True:
            data, caller = receiver.recvfrom(65536)
            receiver.sendto(b"udp " + data, caller)

    threading.Thread(target=serve, daemon=True).start()


def connect(host, port):
    """Returns `ok` or the name of the error."""
    try:
        socket.create_connection((host, port), _LONG_ENOUGH).close()
        return "ok"
    except OSError as error:
        return type(error).__name__


def resolve(name):
    """Returns the address of the name, or the error."""
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        return str(error)


def interfaces():
    return sorted(name for _index, name in socket.if_nameindex())


def raw_socket():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
        return "ok"
    except OSError as error:
        return type(error).__name__


def resolver():
    with open("/etc/resolv.conf") as source:
        return source.read()


def end(code):
    os._exit(code)


def reach(places, seconds):
    """Returns `ok` or the name of the error for each `[protocol, host, port]`.

    Makes all attempts concurrently, because a dropped one lasts until its timeout.
    """
    found = [None] * len(places)

    def ask(index, protocol, host, port):
        try:
            if protocol == "tcp":
                socket.create_connection((host, port), seconds).close()
            else:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                    sender.settimeout(seconds)
                    sender.connect((host, port))
                    sender.send(b"?")
                    sender.recv(16)
            found[index] = "ok"
        except OSError as error:
            found[index] = type(error).__name__

    threads = [threading.Thread(target=ask, args=[index] + place) for index, place in enumerate(places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def listen_everywhere(tcp, udp):
    listen_tcp("0.0.0.0", tcp)
    listen_udp("0.0.0.0", udp)
