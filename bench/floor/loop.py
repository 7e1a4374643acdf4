"""Smallest possible Python handler behind a socket: one connection, no threads, no errors, no limits."""

import json
import socket
import struct
import sys


def handle(event):
    return event


listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(sys.argv[1])
listener.listen(1)
print("ready", flush=True)
connection, _ = listener.accept()
buffer = bytearray()
while True:
    data = connection.recv(65536)
    if not data:
        break
    buffer += data
    while len(buffer) >= 4:
        (length,) = struct.unpack_from(">I", buffer)
        if len(buffer) < 4 + length:
            break
        event = json.loads(buffer[4 : 4 + length])
        del buffer[: 4 + length]
        result = json.dumps(handle(event)).encode()
        connection.sendall(struct.pack(">I", len(result)) + result)
