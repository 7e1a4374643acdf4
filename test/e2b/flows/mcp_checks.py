"""Checks that both generations of the Python SDK of MCP run, over HTTP and over stdio."""

import json
import os

URL = os.environ["MCP_URL"]
COMMAND = json.loads(os.environ["MCP_COMMAND"])
SCHEMA = json.loads(os.environ["MCP_SCHEMA"])


def text_of(result):
    assert [part.type for part in result.content] == ["text"], result
    return result.content[0].text


def data_of(result):
    """Returns the structured content, under the name of either generation."""
    return result.structured_content if hasattr(result, "structured_content") else result.structuredContent


def failed(result):
    return result.is_error if hasattr(result, "is_error") else result.isError


async def check_functions(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert [name for name in tools if not name.startswith("sandbox_")] == ["demo_add"], list(tools)
    tool = tools["demo_add"]
    schema = tool.input_schema if hasattr(tool, "input_schema") else tool.inputSchema
    assert (tool.description, schema) == ("Adds two numbers.", SCHEMA), tool
    result = await client.call_tool("demo_add", {"a": 1, "b": 2})
    assert (json.loads(text_of(result)), data_of(result), failed(result)) == ({"sum": 3}, {"sum": 3}, False), result
    result = await client.call_tool("demo_add", {"a": 1, "text": "hé"})
    assert (text_of(result), data_of(result)) == ("plain hé", None), result
    result = await client.call_tool("demo_add", {"a": 1, "list": True})
    assert (json.loads(text_of(result)), data_of(result)) == ([1, 2], None), result


async def check_failures(client):
    result = await client.call_tool("demo_add", {"a": 1, "boom": True})
    assert failed(result) and "it went boom" in text_of(result), result
    for wrong, path in (({"b": 1}, "arguments.a: is required"), ({"a": "x"}, "arguments.a: must be an integer")):
        result = await client.call_tool("demo_add", wrong)
        assert failed(result) and path in text_of(result), result
    for name in ("demo_none", "demo_untyped", "sandbox_none"):
        try:
            result = await client.call_tool(name, {})
        except Exception as error:
            assert "Unknown tool" in str(error), error
            assert error.error.code == -32602, error
        else:
            raise AssertionError("an unknown tool answered %r" % result)


async def check_sandbox(client):
    async def call(name, **arguments):
        return await client.call_tool("sandbox_" + name, {"sandbox_id": sandbox, **arguments})

    created = await client.call_tool("sandbox_create", {"timeout": 300, "template": "code-interpreter-v1"})
    sandbox = data_of(created)["sandbox_id"]
    ran = data_of(await call("run", command="pwd; whoami; echo $A >&2; exit 3", envs={"A": "b"}))
    assert ran == {"stdout": "/home/user\nuser\n", "stderr": "b\n", "exit_code": 3}, ran
    late = await call("run", command="echo begun; sleep 100", timeout=1)
    assert failed(late) and data_of(late)["stdout"] == "begun\n", late
    assert not failed(await call("write_file", path="dir/a.txt", content="one\ntwö\n"))
    assert text_of(await call("read_file", path="/home/user/dir/a.txt")) == "one\ntwö\n"
    listed = await call("list_files", path=".")
    assert "dir/" in text_of(listed).split("\n"), listed
    assert text_of(await call("list_files", path="dir")) == "a.txt"
    assert "does not exist" in text_of(await call("read_file", path="none"))
    cut = data_of(await call("run", command="head -c 3000000 /dev/zero | tr '\\0' x"))
    assert (len(cut["stdout"]), cut["truncated"]) == (1048576, True)
    await call("run", command="head -c 5000000 /dev/zero > big; printf '\\377' > bytes")
    assert "has more than" in text_of(await call("read_file", path="big"))
    assert "not UTF-8" in text_of(await call("read_file", path="bytes"))
    cell = data_of(await call("run_code", code="x = 1\nprint('hi')\nx + 1", timeout=60))
    assert cell == {"stdout": "hi\n", "stderr": "", "results": ["2"], "error": None}, cell
    cell = await call("run_code", code="x / 0")
    assert failed(cell) and data_of(cell)["error"]["name"] == "ZeroDivisionError", cell
    assert "/serverless/v1/http/?instance=" in data_of(await call("port_url", port=8000))["url"]
    assert not failed(await call("kill"))
    for gone in (await call("run", command="ls"), await call("kill"), await call("read_file", path="x")):
        assert failed(gone) and "not found" in text_of(gone), gone
