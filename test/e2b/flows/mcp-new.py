"""Checks the Python SDK of MCP 2, with both generations of the protocol."""

from checks import check, run_checks
from mcp import Client, StdioServerParameters
from mcp_checks import COMMAND, URL, check_failures, check_functions, check_sandbox

STDIO = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])


async def with_client(server, mode, body, version):
    async with Client(server, mode=mode) as client:
        assert client.protocol_version == version, client.protocol_version
        await body(client)


NEWEST = ("auto", "2026-07-28")
OLDER = ("legacy", "2025-11-25")


@check("B4 the tools over HTTP, by the newest protocol")
async def newest():
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(URL, NEWEST[0], body, NEWEST[1])


@check("B4 the tools over HTTP, by the older handshake")
async def older():
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(URL, OLDER[0], body, OLDER[1])


@check("rookery mcp serves the same tools over stdio, by the newest protocol")
async def stdio():
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(STDIO, NEWEST[0], body, NEWEST[1])


@check("rookery mcp serves the same tools over stdio, by the older handshake")
async def stdio_older():
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(STDIO, OLDER[0], body, OLDER[1])


run_checks()
