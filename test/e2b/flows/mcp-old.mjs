/** Checks the first generation of the TypeScript SDK of MCP. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { check, runChecks } from './checks.mjs';
import { ARGS, COMMAND, checkTools, URL_OF_MCP } from './mcp-checks.mjs';

async function withClient(transport) {
  const client = new Client({ name: 'flow', version: '1' });
  await client.connect(transport);
  try {
    await checkTools(client);
  } finally {
    await client.close();
  }
}

check('B4 the tools over HTTP', async () => {
  await withClient(new StreamableHTTPClientTransport(URL_OF_MCP));
});

check('rookery mcp serves the same tools over stdio', async () => {
  await withClient(new StdioClientTransport({ command: COMMAND, args: ARGS }));
});

await runChecks();
