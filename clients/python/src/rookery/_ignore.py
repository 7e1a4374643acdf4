"""Rules of an ignore file, which match the same paths as git and the command line of Rookery."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Pattern, Tuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEVER = rb"(?!)"
CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-\~",
    b"lower": rb"a-z",
    b"print": rb" -\~",
    b"punct": rb"!-/:-@\[-`{-\~",
    b"space": rb"\t-\r ",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class _Rule(NamedTuple):
    pattern: Pattern[bytes]
    is_negative: bool
    is_for_directories: bool
    is_for_names: bool
    """True if the line has no slash, so that it applies to the last name of a path."""


class IgnoreRules:
    def __init__(self, content: bytes) -> None:
        if content.startswith(BYTE_ORDER_MARK):
            content = content[len(BYTE_ORDER_MARK) :]
        lines = [line for line in content.split(b"\n") if line and not line.startswith(b"#")]
        self._rules = [_rule(_without_trailing_spaces(re.sub(rb"\r\Z", b"", line))) for line in reversed(lines)]

    def is_excluded(self, path: bytes, is_directory: bool) -> Optional[bool]:
        """Returns True if the last matching line excludes `path`, and False if the line includes it.

        Returns None if no line matches. The caller checks the parent directories of `path`.
        """
        name = path[path.rfind(b"/") + 1 :]
        for rule in self._rules:
            if rule.is_for_directories and not is_directory:
                continue
            if rule.pattern.fullmatch(name if rule.is_for_names else path):
                return not rule.is_negative
        return None


def _without_trailing_spaces(line: bytes) -> bytes:
    """Removes trailing spaces of a line. Tabs and a space after a backslash stay."""
    found = re.fullmatch(rb"((?:\\.|[^\\])*?) *", line, re.DOTALL)
    return line if found is None else found[1]


def _rule(line: bytes) -> _Rule:
    is_negative = line.startswith(b"!")
    path = line[1:] if is_negative else line
    is_for_directories = path.endswith(b"/")
    if is_for_directories:
        path = path[:-1]
    glob = path[1:] if path.startswith(b"/") else path
    return _Rule(re.compile(_expression(glob), re.DOTALL), is_negative, is_for_directories, b"/" not in path)


def _expression(glob: bytes) -> bytes:
    """Translates a git pattern to a regular expression. A malformed pattern matches nothing."""
    start = len(re.match(rb"[^*?\[\\]*", glob)[0])  # type: ignore[index]
    parts = [re.escape(glob[:start])]
    at = start
    while at < len(glob):
        character = glob[at : at + 1]
        if character == b"*":
            following = len(glob) - len(glob[at:].lstrip(b"*"))
            rest = glob[following:]
            is_whole = (at == start or glob[at - 1 : at] == b"/") and re.match(rb"\\?/|\Z", rest)
            if following - at == 1 or not is_whole:
                parts.append(rb"[^/]*")
            elif rest.startswith(b"/"):
                parts.append(rb"(?:.*/)?")
                following += 1
            else:
                parts.append(rb".*")
            at = following
        elif character == b"[":
            found = _set(glob, at + 1)
            if found is None:
                return NEVER
            parts.append(found[0])
            at = found[1]
        elif character == b"\\":
            if at + 1 == len(glob):
                return NEVER
            parts.append(re.escape(glob[at + 1 : at + 2]))
            at += 2
        else:
            parts.append(rb"[^/]" if character == b"?" else re.escape(character))
            at += 1
    return b"".join(parts)


def _set(glob: bytes, first: int) -> Optional[Tuple[bytes, int]]:
    """Translates the bracket expression whose content begins at `first`.

    Returns the result and the offset behind the expression, or None if the expression has no end or names an
    unknown character class.
    """
    is_negated = glob[first : first + 1] in (b"!", b"^")
    first += is_negated
    members: List[bytes] = []
    previous = b""
    at = first
    while at == first or glob[at : at + 1] != b"]":
        named = re.match(rb"\[:([^\]]*):\]", glob[at:])
        span = re.match(rb"-(?:\\(.)|([^\]\\]))", glob[at:], re.DOTALL)
        if named:
            if named[1] not in CLASSES:
                return None
            members.append(CLASSES[named[1]])
            previous = b""
            at += named.end()
        elif span and previous:
            last = span[1] or span[2]
            if previous <= last:
                members.append(re.escape(previous) + b"-" + re.escape(last))
            previous = b""
            at += span.end()
        else:
            if glob[at : at + 1] == b"\\":
                at += 1
            previous = glob[at : at + 1]
            if not previous:
                return None
            members.append(re.escape(previous))
            at += 1
    content = b"".join(members)
    if is_negated:
        return rb"[^/" + content + b"]", at + 1
    return (rb"(?!/)[" + content + b"]" if content else NEVER), at + 1
