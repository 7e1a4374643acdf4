"""Checks the first generation of the Python SDK of MCP."""

from checks import check, run_checks
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp_checks import COMMAND, URL, check_failures, check_functions, check_sandbox


async def with_client(transport, body):
    async with transport as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        await body(session)


@check("B4 the tools over HTTP")
async def http():
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(streamablehttp_client(URL), body)


@check("rookery mcp serves the same tools over stdio")
async def stdio():
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
    for body in (check_functions, check_failures, check_sandbox):
        await with_client(stdio_client(parameters), body)


run_checks()
