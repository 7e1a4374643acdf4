"""
Makes everything immortal that a zygote has loaded (PEP 683, CPython 3.12 and later).

References to immortal objects are not counted. So an instance that uses them does not write to the pages that
it shares with all others. That saves about a third of an instance's private memory.
"""

import _io
import ctypes
import gc
import socket
import sys
import types

_Count = ctypes.c_uint32
#: Counts from this value on are those of immortal objects.
_IMMORTAL = 1 << 31
#: Types whose objects close or end something with their last reference. Abstract classes are avoided: a
#: subclass check of such a class checks all its subclasses, which displaces the entries of every instance
#: in the interpreter's attribute cache.
_MORTAL = (_io._IOBase, socket.socket, types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
#: Types whose objects refer to no others.
_LEAVES = frozenset((str, bytes, int, float))
#: Attributes of code objects that the garbage collector does not report, since none of them leads back.
_OF_CODE = ("co_consts", "co_names", "co_name", "co_qualname", "co_filename", "co_linetable", "co_exceptiontable")


def make_modules_immortal():
    """
    Makes everything immortal that is reachable from the modules.

    Objects that only a stack refers to, such as a zygote's own state, stay mortal. Has no effect in an
    interpreter that counts in another way.
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
    """Returns True if the count is at the expected address, and writing it has the expected effect."""
    probe = []
    before = _count_of(probe)
    ten = [probe] * 10
    if _count_of(probe) != before + len(ten):
        return False
    _Count.from_address(id(probe)).value = count
    ten.extend(ten)
    return _count_of(probe) == count
