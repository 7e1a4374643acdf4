"""Code packages: directories that the client packs and uploads."""

from __future__ import annotations

import asyncio
import os
from typing import AsyncIterator, Union

from .. import types as wire
from .._error import RookeryError
from .._pack import pack, scratch_file
from .._runs import CODE_SCHEME
from .._wire import Request
from .connection import AsyncConnection

OCTETS = "application/octet-stream"


class AsyncCode:
    """Manages code packages: uploaded directories, each named by the SHA-256 of its archive."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def upload(self, directory: Union[str, os.PathLike[str]], *, stand_in: bool = False) -> str:
        """Packs a directory, uploads it unless the service has it, and returns its name, `code://<sha256>`.

        Returns a name that already begins with `code://` unchanged. `stand_in`: adds a module `rookery`, with
        which decorated functions load in a sandbox without this client.
        """
        if str(directory).startswith(CODE_SCHEME):
            return str(directory)
        with scratch_file() as archive:
            packed = await asyncio.to_thread(pack, directory, archive, False, stand_in)
            params = {"sha256": packed.sha256}
            if not await self._is_there(Request("getCode", params)):
                await self._connection.call(
                    Request("putCode", params, content=archive, content_type=OCTETS, is_unbounded=True)
                )
        return CODE_SCHEME + packed.sha256

    async def upload_working_directory(self, directory: Union[str, os.PathLike[str]]) -> str:
        """Packs a working directory of jobs, uploads it unless the service has it, and returns its URI.

        The URI begins with `gcs://`. Jobs use their own kind of package, in which symbolic links are
        followed.
        """
        with scratch_file() as archive:
            packed = await asyncio.to_thread(pack, directory, archive, True)
            name = "_rookery_pkg_%s.tar.gz" % packed.content_sha256[:40]
            params = {"protocol": "gcs", "name": name}
            if not await self._is_there(Request("getPackage", params)):
                await self._connection.read(
                    Request("putPackage", params, content=archive, content_type=OCTETS, is_unbounded=True)
                )
        return "gcs://" + name

    async def list(self) -> AsyncIterator[wire.CodePackage]:
        """Yields all code packages of the tenant; requests each page when it is needed."""
        cursor = None
        while True:
            page = await self._connection.call(Request("listCode", query={"cursor": cursor}))
            for package in page["packages"]:
                yield package
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def delete(self, sha256: str) -> None:
        """Deletes a code package. Fails while any resource refers to the package."""
        await self._connection.call(Request("deleteCode", {"sha256": sha256}))

    async def _is_there(self, request: Request) -> bool:
        try:
            await self._connection.read(request)
            return True
        except RookeryError as error:
            if error.status == 404 or "does not exist" in error.message:
                return False
            raise
