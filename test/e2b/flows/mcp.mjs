/** Checks the TypeScript client of MCP 2, with both generations of the protocol. */
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { check, runChecks } from './checks.mjs';
import { ARGS, COMMAND, checkTools, URL_OF_MCP } from './mcp-checks.mjs';

async function withClient(transport, mode, version) {
  const client = new Client({ name: 'flow', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(transport);
  try {
    assert.equal(client.getNegotiatedProtocolVersion(), version);
    await checkTools(client);
  } finally {
    await client.close();
  }
}

check('B4 the tools over HTTP, by the newest protocol', async () => {
  await withClient(new StreamableHTTPClientTransport(URL_OF_MCP), 'auto', '2026-07-28');
});

check('B4 the tools over HTTP, by the older handshake', async () => {
  await withClient(new StreamableHTTPClientTransport(URL_OF_MCP), 'legacy', '2025-11-25');
});

check('rookery mcp serves the same tools over stdio, by the newest protocol', async () => {
  await withClient(new StdioClientTransport({ command: COMMAND, args: ARGS }), 'auto', '2026-07-28');
});

check('rookery mcp serves the same tools over stdio, by the older handshake', async () => {
  await withClient(new StdioClientTransport({ command: COMMAND, args: ARGS }), 'legacy', '2025-11-25');
});

await runChecks();
