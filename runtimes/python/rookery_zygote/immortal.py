"""
Makes immortal what a zygote has loaded (PEP 683, CPython 3.12 and later): references to it are not counted any more, so that an
instance that uses it writes to none of the pages that it shares with all others: about a third of the private memory of an instance.
"""

import _io
import ctypes
import gc
import socket
import sys
import types

_Count = ctypes.c_uint32
#: Counts from here on are those of immortal objects.
_IMMORTAL = 1 << 31
#: What closes or ends something with its last reference. None is an abstract class: one that is asked about a type asks all its subclasses,
#: which throws out of the interpreter's cache of attributes what every instance looks up.
_MORTAL = (_io._IOBase, socket.socket, types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
#: What leads to nothing.
_LEAVES = frozenset((str, bytes, int, float))
#: What a collector is not told of, since none of it leads back.
_OF_CODE = ("co_consts", "co_names", "co_name", "co_qualname", "co_filename", "co_linetable", "co_exceptiontable")


def make_modules_immortal():
    """
    Everything that is reachable from the modules. What is only on a stack, as a zygote's own state, ends as before. Without effect
    where an interpreter counts otherwise.
    """
    count = _count_of(None)
    if count < _IMMORTAL or not _can_be_set(count):
        return
    at = _Count.from_address
    mortal = {}
    waiting = [sys.modules, object.__subclasses__()]
    seen = {id(waiting)}
    seen.add(id(seen))
    while waiting:
        one = waiting.pop()
        address = id(one)
        if address in seen:
            continue
        seen.add(address)
        kind = type(one)
        if kind not in mortal:
            mortal[kind] = issubclass(kind, _MORTAL)
        if mortal[kind]:
            continue
        counted = at(address)
        if counted.value < _IMMORTAL:
            counted.value = count
        if kind is types.CodeType:
            waiting.extend([getattr(one, name) for name in _OF_CODE])
        elif kind not in _LEAVES:
            waiting.extend(gc.get_referents(one))


def _count_of(one):
    return _Count.from_address(id(one)).value


def _can_be_set(count):
    """Whether the count is where it is written, and a write does what it is to do."""
    probe = []
    before = _count_of(probe)
    ten = [probe] * 10
    if _count_of(probe) != before + len(ten):
        return False
    _Count.from_address(id(probe)).value = count
    ten.extend(ten)
    return _count_of(probe) == count
