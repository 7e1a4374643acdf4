#!/usr/bin/python3 -IB
"""
The init container of a pod: copies the manager's files into the pod's volume, and makes its key and
certificate.
"""

import argparse
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from rookery_pod import keys, proof  # noqa: E402

_CERTIFICATE_DAYS = "36500"
_FEWEST_SECRET_BYTES = 16


def main():
    parser = argparse.ArgumentParser(description="Prepares the volumes of a pod for its manager.")
    parser.add_argument("--source", default="/opt/rookery/pod", help="what is copied; nothing when it is empty")
    parser.add_argument("--home", default="/rookery")
    parser.add_argument("--run", default="/run/rookery")
    parser.add_argument("--secret", default="/run/rookery-secret/key")
    arguments = parser.parse_args()
    pod_uid = os.environ.get("ROOKERY_POD_UID", "")
    if not pod_uid:
        sys.exit("ROOKERY_POD_UID is not set: it must be the uid of the pod (metadata.uid)")
    with open(arguments.secret, "rb") as source:
        secret = source.read()
    if len(secret) < _FEWEST_SECRET_BYTES:
        sys.exit("%s has %d bytes, and a secret has at least %d" % (arguments.secret, len(secret), _FEWEST_SECRET_BYTES))
    for path in filter(None, os.environ.get("ROOKERY_POD_DIRECTORIES", "").split(":")):
        # The directory of an instance's code, which may run as another user.
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o755)
    os.umask(0o077)
    # Removes the files of an earlier attempt, for example when the node lost its power.
    for name in keys.FILES:
        if os.path.exists(os.path.join(arguments.run, name)):
            os.unlink(os.path.join(arguments.run, name))
    making = _make_certificate(arguments.run)
    if arguments.source:
        _copy(arguments.source, arguments.home)
    with open(os.path.join(arguments.run, keys.KEY), "wb") as out:
        out.write(proof.key_of(secret, pod_uid))
    _out, errors = making.communicate()
    if making.returncode != 0:
        sys.exit("no certificate can be made: %s" % errors.decode("utf-8", "replace").strip())


def _make_certificate(run):
    names = ("-keyout", os.path.join(run, keys.TLS_KEY), "-out", os.path.join(run, keys.CERTIFICATE))
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _CERTIFICATE_DAYS)
    argv = ("openssl", "req", "-x509", "-subj", "/CN=rookery-pod") + kind + names
    # Without RANDFILE openssl writes a file of random state to HOME.
    env = {"PATH": os.environ.get("PATH", os.defpath), "RANDFILE": os.devnull}
    return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _copy(source, target):
    for name in os.listdir(source):
        place = os.path.join(target, name)
        if os.path.isdir(place):
            shutil.rmtree(place)
        shutil.copytree(os.path.join(source, name), place, symlinks=True)
        # Only the directories below have the mode of the source. The mode of the volume itself belongs to the
        # cluster.


if __name__ == "__main__":
    main()
