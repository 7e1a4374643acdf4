"""The mutual proof of a connection: both sides know the pod's key and use the same TLS session.

After the handshake the client sends a nonce. The manager answers with its own nonce and its proof. Then the
client sends its proof. A proof is bound to the manager's certificate, so a man in the middle, who has another
certificate, cannot use it. `src/lib/proven-tls.ts` is the client.
"""

import hashlib
import hmac
import os

NONCE_BYTES = 32
PROOF_BYTES = 32
SERVER, CLIENT = b"rookery pod server", b"rookery pod client"


def nonce():
    return os.urandom(NONCE_BYTES)


def prove(key, role, client_nonce, server_nonce, certificate_hash):
    message = b"\0".join((role, client_nonce + server_nonce + certificate_hash))
    return hmac.new(key, message, hashlib.sha256).digest()


def is_proof(given, key, role, client_nonce, server_nonce, certificate_hash):
    return hmac.compare_digest(given, prove(key, role, client_nonce, server_nonce, certificate_hash))


def key_of(secret, pod_uid):
    """Returns the key of a pod, derived from the secret of the installation."""
    return hmac.new(secret, pod_uid.encode(), hashlib.sha256).digest()
