"""Packs a directory as a tar.gz, without the files that the command line excludes (docs/start/deploy.md)."""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import re
import stat
import tarfile
import tempfile
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, List, Tuple, Union

from ._error import RookeryError
from ._ignore import IgnoreRules

IGNORE_FILE = ".rookeryignore"
LEFT_OUT = frozenset([".git", "__pycache__", "node_modules", ".venv", IGNORE_FILE])
#: Names of the temporary files and broken links that editors keep beside an open file.
OF_EDITORS = re.compile(r"\.#.*|#.*#|.*~|\..*\.sw[a-p]", re.DOTALL)
#: Names in a directory that `import rookery` would find.
OWN_NAMES = ("rookery.py", "rookery")
STAND_IN = Path(__file__).with_name("_stand_in.py")
MAX_FILES = 50_000
CHUNK = 64 * 1024

#: Directory that has an ignore file, and the rules of the file.
Rules = Tuple[str, IgnoreRules]


@dataclass(frozen=True)
class Packed:
    archive: Path
    sha256: str
    content_sha256: str
    """SHA-256 of the tar archive before compression."""


def pack(
    directory: Union[str, os.PathLike[str]], archive: Path, follows_links: bool, stand_in: bool = False
) -> Packed:
    """Packs a directory and returns the checksums. The same files always make the same bytes.

    Entries are sorted by name and have no times and no owners. `follows_links`: packs the targets of symbolic
    links instead of the links. `stand_in`: adds the module that stands in for this client, unless the directory
    has one of that name. Fails with `RookeryError`.
    """
    root = Path(directory).resolve()
    if not root.is_dir():
        raise RookeryError("code: the directory %s does not exist" % root)
    try:
        with archive.open("xb") as out:
            compressed: Any = _Hashed(out)
            with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, compresslevel=6, mtime=0) as zipped:
                content: Any = _Hashed(zipped)
                with tarfile.open(fileobj=content, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                    walk = _Walk(root, tar, follows_links)
                    walk.directory("", [], [])
                    if stand_in and not any((root / name).exists() for name in OWN_NAMES):
                        walk.add_file(OWN_NAMES[0], STAND_IN)
    except OSError as error:
        place = "%s: " % error.filename if error.filename else ""
        raise RookeryError("code: %s cannot be packed: %s%s" % (root, place, error.strerror or error)) from error
    return Packed(archive, compressed.digest.hexdigest(), content.digest.hexdigest())


@contextmanager
def scratch_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rookery-code-") as work:
        yield Path(work) / "code.tar.gz"


class _Hashed:
    def __init__(self, out: Any) -> None:
        self._out = out
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._out.write(data)
        return len(data)

    def flush(self) -> None:
        self._out.flush()


class _Walk:
    def __init__(self, root: Path, tar: tarfile.TarFile, follows_links: bool) -> None:
        self._root = root
        self._tar = tar
        self._follows_links = follows_links
        self._files = 0

    def directory(self, below: str, above: List[Rules], around: List[Tuple[int, int]]) -> None:
        """Packs one directory. `around`: identities of the directories that contain it, through links too."""
        rules = above + self._rules_of(below)
        within = around + [_identity(self._root / below)]
        for entry in sorted(os.scandir(self._root / below), key=lambda one: one.name):
            path = posixpath.join(below, entry.name)
            is_directory = entry.is_dir(follow_symlinks=self._follows_links)
            if entry.name in LEFT_OUT or OF_EDITORS.fullmatch(entry.name):
                continue
            if _is_ignored(rules, path, is_directory):
                continue
            _check_name(path)
            if entry.is_symlink() and not self._follows_links:
                self._add(self._link(path, os.readlink(entry.path)))
            elif is_directory:
                # A link to a containing directory would recurse without end; its content is already packed.
                if _identity(entry.path) not in within:
                    self._add(_entry(path, tarfile.DIRTYPE, 0o755), counts=False)
                    self.directory(path, rules, within)
            elif entry.is_file():
                self.add_file(path, Path(entry.path))
            else:
                is_link = entry.is_symlink() and not os.path.exists(entry.path)
                why = "is a link that leads nowhere" if is_link else "is neither a file nor a directory"
                _warn("code: %s %s, and is left out." % (path, why))

    def add_file(self, path: str, source: Path) -> None:
        with source.open("rb") as content:
            found = os.fstat(content.fileno())
            info = _entry(path, tarfile.REGTYPE, 0o755 if found.st_mode & 0o111 else 0o644)
            info.size = found.st_size
            self._add(info, content)

    def _link(self, path: str, target: str) -> tarfile.TarInfo:
        leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or ".." in leads_to.split("/"):
            raise RookeryError(
                "code: %s is a link to %s, which is not in %s: leave it out with %s, or put what it leads to there."
                % (path, target, self._root, IGNORE_FILE)
            )
        if not os.path.exists(self._root / path):
            _warn("code: %s is a link to %s, which does not exist." % (path, target))
        info = _entry(path, tarfile.SYMTYPE, 0o777)
        info.linkname = target
        return info

    def _add(self, info: tarfile.TarInfo, content: Any = None, counts: bool = True) -> None:
        self._files += counts
        if self._files > MAX_FILES:
            raise RookeryError(
                "code %s has more than %d files: leave out what is not needed with %s."
                % (self._root, MAX_FILES, IGNORE_FILE)
            )
        self._tar.addfile(info, content)

    def _rules_of(self, below: str) -> List[Rules]:
        try:
            content = (self._root / below / IGNORE_FILE).read_bytes()
        except OSError:
            return []
        return [(below, IgnoreRules(content))]


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _identity(directory: Union[str, os.PathLike[str]]) -> Tuple[int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _check_name(path: str) -> None:
    """Fails if a name is not UTF-8, the encoding of names in the archive."""
    name = os.fsencode(path)
    try:
        name.decode()
    except UnicodeDecodeError:
        shown = name.decode(errors="replace")
        text = "code: the name of %s is not UTF-8: rename it, or leave it out with %s." % (shown, IGNORE_FILE)
        raise RookeryError(text) from None


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.mode = stat.S_IMODE(mode)
    return info


def _is_ignored(all_rules: List[Rules], path: str, is_directory: bool) -> bool:
    """Returns True if the ignore files exclude a path.

    The nearest ignore file with a matching line decides, and in this file the last matching line.
    """
    is_left_out = False
    for below, rules in all_rules:
        own = path if below == "" else path[len(below) + 1 :]
        decided = rules.is_excluded(os.fsencode(own), is_directory)
        if decided is not None:
            is_left_out = decided
    return is_left_out
