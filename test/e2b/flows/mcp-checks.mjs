/** Checks that both generations of the TypeScript SDK of MCP run, over HTTP and over stdio. */
import assert from 'node:assert/strict';

export const URL_OF_MCP = new URL(process.env.MCP_URL);
export const [COMMAND, ...ARGS] = JSON.parse(process.env.MCP_COMMAND);
const SCHEMA = JSON.parse(process.env.MCP_SCHEMA);

/** Checks the tools by a connected client. */
export async function checkTools(client) {
  const { tools } = await client.listTools();
  const functions = tools.filter(({ name }) => !name.startsWith('sandbox_'));
  assert.deepEqual(
    functions.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
    [{ name: 'demo_add', description: 'Adds two numbers.', inputSchema: SCHEMA }],
  );
  const call = (name, input) => client.callTool({ name, arguments: input });
  const sum = await call('demo_add', { a: 1, b: 2 });
  assert.deepEqual(sum.structuredContent, { sum: 3 });
  assert.equal((await call('demo_add', { a: 1, text: 'x' })).content[0].text, 'plain x');
  const boom = await call('demo_add', { a: 1, boom: true });
  assert.equal(boom.isError, true);
  assert.match(boom.content[0].text, /it went boom/);
  assert.match((await call('demo_add', {})).content[0].text, /arguments\.a: is required/);
  await assert.rejects(call('demo_none', {}), error => error.code === -32602 && /Unknown tool/.test(error.message));

  const { sandbox_id } = (await call('sandbox_create', {})).structuredContent;
  const ran = await call('sandbox_run', { sandbox_id, command: 'pwd; exit 2' });
  assert.deepEqual(ran.structuredContent, { stdout: '/home/user\n', stderr: '', exit_code: 2 });
  await call('sandbox_write_file', { sandbox_id, path: 'a', content: 'text' });
  assert.equal((await call('sandbox_read_file', { sandbox_id, path: 'a' })).content[0].text, 'text');
  assert.match((await call('sandbox_run_code', { sandbox_id, code: '1' })).content[0].text, /has no interpreter/);
  assert.notEqual((await call('sandbox_kill', { sandbox_id })).isError, true);
  assert.equal((await call('sandbox_kill', { sandbox_id })).isError, true);
}
