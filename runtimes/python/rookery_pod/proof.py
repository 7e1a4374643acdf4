"""What both sides of a connection prove: that they know the pod's key, and speak over the same TLS.

Directly after the handshake the client sends a nonce; the manager answers with one of its own and its proof; then comes the proof of
the client. A proof is bound to the manager's certificate: it is of no use to somebody in the middle, who has another one.
`src/lib/proven-tls.ts` is the client.
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
    """The key of one pod, from the secret of the installation."""
    return hmac.new(secret, pod_uid.encode(), hashlib.sha256).digest()
