"""Options common to agents and functions, named as in `rookery.yaml` (docs/start/deploy.md)."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

from ._wire import given
from .types import AgentExpose, SecretReference

CODE_SCHEME = "code://"
#: Path in the sandbox at which the code of an agent is mounted.
CODE_PATH = "/code"
PIP_FILES = ("requirements.txt", "pyproject.toml", "uv.lock", "poetry.lock")

Environment = Mapping[str, Union[str, SecretReference]]


def run_fields(
    code: Optional[Union[str, os.PathLike[str]]],
    *,
    runtime: Optional[str],
    handler: Optional[str],
    http_profile: Optional[str],
    initializer: Optional[str],
    pre_stop: Optional[str],
    dependencies: Optional[str],
    cpu: int,
    memory: int,
    image: str,
    user: Optional[str],
    ports: Optional[List[str]],
) -> Dict[str, Any]:
    chosen = runtime or "http" if http_profile else runtime or "python%d.%d" % sys.version_info[:2]
    is_node = chosen.startswith("nodejs")
    # The runtime `http` has no handler: the program serves HTTP.
    usual = None if chosen == "http" else "index.handle" if is_node else "handler.handle"
    asks = code is not None and asks_for_dependencies(code, is_node)
    return {
        **given(handler=handler or usual, dependencies=dependencies or ("auto" if asks else None)),
        **given(httpProfile=http_profile),
        "runtime": chosen,
        "cpu": cpu,
        "memory": memory,
        "extendedHandler": given(initializer=initializer, pre_stop=pre_stop),
        "rootfs": {"imageurl": image, **given(user=user, ports=ports)},
    }


def asks_for_dependencies(code: Union[str, os.PathLike[str]], is_node: bool) -> bool:
    """Returns True if a directory has a file that lists packages to install."""
    return any((Path(code) / name).exists() for name in (["package.json"] if is_node else PIP_FILES))


def made_up_name(code: Optional[Union[str, os.PathLike[str]]], key: str) -> str:
    """Makes a name from the directory and a suffix from `key`. The name is valid in an address."""
    base = "agent" if code is None or str(code).startswith(CODE_SCHEME) else Path(code).resolve().name
    words = re.sub("[^a-z0-9]+", "-", base.lower()).strip("-")[:30].strip("-")
    return "%s-%s" % (words or "agent", hashlib.sha256(key.encode()).hexdigest()[:8])


def has_fields(record: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Returns True if a record has the values of all fields, also those inside of objects.

    Ignores `dependencies`, which records lack: they belong to the code.
    """
    for name, value in fields.items():
        found = record.get(name)
        if isinstance(value, Mapping) and name != "inputSchema":
            if not isinstance(found, Mapping) or not has_fields(found, value):
                return False
        elif name != "dependencies" and found != value:
            return False
    return True


def is_id(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None


def shown(handle: object, **fields: Any) -> str:
    """Returns the representation of a handle: its class and these fields, never its whole record."""
    return "%s(%s)" % (type(handle).__name__, ", ".join("%s=%r" % field for field in fields.items()))
