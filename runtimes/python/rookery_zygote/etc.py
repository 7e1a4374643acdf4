"""The /etc of sandboxes: copies of the few files of the host that programs need, kept up to date.

Copies are needed because a bind mount of a file keeps the old file when the host replaces it. That happens to
resolv.conf on every change of network.
"""

import os
import shutil

from . import network_names

#: Names of the files. A symbolic link into /usr stays a link; any other is followed.
FILES = (
    "adjtime alpine-release bash.bashrc debian_version environment-modules ethertypes fedora-release gai.conf group "
    "host.conf hostname hosts inputrc ld.so.cache ld.so.conf locale.alias locale.conf localtime login.defs lsb-release "
    "magic mime.types mke2fs.conf networks nsswitch.conf os-release passwd profile protocols redhat-release "
    "resolv.conf rpc services shells timezone ssl/openssl.cnf ssl/cert.pem ca-certificates.conf"
).split()
#: Names of directories without secrets, which are bound read-only.
DIRECTORIES = (
    "alternatives ca-certificates crypto-policies fonts ld.so.conf.d pki/ca-trust/extracted pki/tls/certs "
    "pki/java ssl/certs ssl/misc terminfo"
).split()
#: Beginnings of the names of further directories to bind: configuration of language runtimes.
DIRECTORY_BEGINNINGS = ("java", "python3", "perl")


class EtcTemplate:
    """A directory of the host that every sandbox has as its /etc, read-only."""

    def __init__(self, path, source="/etc", keep=False):
        """`keep`: continues with the existing directory, which sandboxes may be using."""
        self.path = path
        self._source = source
        self._seen = {}
        if not keep:
            shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path, mode=0o755, exist_ok=True)
        os.chmod(path, 0o755)
        self.directories = self._find_directories()
        for name in self.directories:
            self._make_directories(name)
        self._link("mtab", "/proc/mounts")
        self.refresh()

    def refresh(self):
        """
        Copies the files that have changed on the host.

        Writes files in place, so that running sandboxes see the change.
        """
        for name in FILES:
            origin = self._origin(name)
            try:
                link = os.readlink(origin) if os.path.islink(origin) else None
                facts = os.stat(origin)
            except OSError:
                continue
            seen = (link, facts.st_mtime, facts.st_size, facts.st_ino)
            if self._seen.get(name) == seen or not os.path.isfile(origin):
                continue
            if link is not None and os.path.realpath(origin).startswith("/usr/"):
                self._link(name, os.path.realpath(origin))
            elif facts.st_mode & 0o004:
                self._copy(name, origin, facts)
            self._seen[name] = seen

    def _origin(self, name):
        path = os.path.join(self._source, name)
        return network_names.resolvers_file(path) if name == "resolv.conf" else path

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def _find_directories(self):
        names = [name for name in DIRECTORIES if os.path.isdir(os.path.join(self._source, name))]
        try:
            entries = sorted(os.listdir(self._source))
        except OSError:
            entries = []
        for name in entries:
            path = os.path.join(self._source, name)
            if name.startswith(DIRECTORY_BEGINNINGS) and os.path.isdir(path) and not os.path.islink(path):
                names.append(name)
        return names

    def _copy(self, name, origin, facts):
        target = os.path.join(self.path, name)
        try:
            if _is_copy(target, facts):
                return
            self._make_parent(target)
            if os.path.islink(target):
                os.unlink(target)
            with open(origin, "rb") as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)
            os.chmod(target, 0o644)
            os.utime(target, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
        except OSError:
            pass

    def _make_parent(self, path):
        """
        Creates the parent directory, only below the template: a removed template is not created again.

        Raises OSError.
        """
        self._make_directories(os.path.relpath(os.path.dirname(path), self.path))

    def _make_directories(self, name):
        """
        Creates directories that all users may enter, whatever the umask is: sandboxes mostly run as another
        user.
        """
        path = self.path
        for part in name.split("/"):
            path = os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            os.chmod(path, 0o755)

    def _link(self, name, target):
        path = os.path.join(self.path, name)
        try:
            if os.path.islink(path) and os.readlink(path) == target:
                return
            if os.path.lexists(path):
                os.unlink(path)
            self._make_parent(path)
            os.symlink(target, path)
        except OSError:
            pass


def _is_copy(path, facts):
    """Returns True if the file at `path` is a copy of the file with these facts."""
    try:
        held = os.lstat(path)
    except OSError:
        return False
    return (held.st_mode, held.st_size, held.st_mtime_ns) == (0o100644, facts.st_size, facts.st_mtime_ns)
