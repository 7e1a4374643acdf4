"""
The key and the certificate of a pod.

An init container makes the files; the manager reads and removes them.
"""

import hashlib
import os
import ssl

KEY, TLS_KEY, CERTIFICATE = "key", "tls.key", "tls.crt"
FILES = (KEY, TLS_KEY, CERTIFICATE)
_KEY_BYTES = 32
#: Protocols of this manager, newest first (`src/lib/proven-tls.ts`). Since version 2 an order may contain the
#: code. An older server names no protocol, and a newer one names all that it supports; both are accepted.
PROTOCOLS = ["rookery-pod/2"]


class NoKeys(Exception):
    """The files do not exist, as after a restart of the container."""


class Keys:
    def __init__(self, directory):
        """Reads the files and removes them. Raises NoKeys."""
        paths = [os.path.join(directory, name) for name in FILES]
        try:
            with open(paths[0], "rb") as source:
                self.key = source.read()
            with open(paths[2]) as source:
                certificate = ssl.PEM_cert_to_DER_cert(source.read())
            self.context = _context(paths[2], paths[1])
        except (OSError, ValueError) as error:
            raise NoKeys(str(error))
        finally:
            for path in paths:
                if os.path.lexists(path):
                    os.unlink(path)
        if len(self.key) != _KEY_BYTES:
            raise NoKeys("the key has %d bytes" % len(self.key))
        self.certificate_hash = hashlib.sha256(certificate).digest()


def _context(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The Python of Rookery's image has both attributes. Tests also run with older versions.
    if hasattr(ssl, "TLSVersion"):
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # novm
    if hasattr(context, "num_tickets"):
        context.num_tickets = 0  # novm
    context.set_alpn_protocols(PROTOCOLS)
    context.load_cert_chain(certificate, key)
    return context
