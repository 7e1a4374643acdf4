import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import type { E2bService } from '../e2b/e2b-service.ts';

const HANDLER = `
def handle(event, context=None):
    if event.get('boom'):
        raise ValueError('it went boom')
    if 'text' in event:
        return 'plain ' + event['text']
    if event.get('list'):
        return [1, 2]
    return {'sum': event['a'] + event.get('b', 0)}
`;
/** The schema of the registered tool, which clients must see as it is. */
const SCHEMA = {
  type: 'object',
  properties: {
    a: { type: 'integer', description: 'The first number.' },
    b: { type: 'integer', default: 0 },
    text: { type: 'string' },
    list: { type: 'boolean' },
    boom: { type: 'boolean' },
  },
  required: ['a'],
};

const directory = mkdtempSync(join(tmpdir(), 'rookery-mcp-'));
writeFileSync(join(directory, 'handler.py'), HANDLER);
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Registers the functions of the flows, and returns the environment variables of the flows. */
export async function mcpEnvironment(
  { frontendUrl, served }: E2bService,
  headers: Readonly<Record<string, string>> = {},
): Promise<Record<string, string>> {
  const base = { runtime: 'python3.11', handler: 'handler.handle', cpu: 100, memory: 128 };
  const fn = { ...base, kind: 'faas', storageType: 'local', codePath: directory, description: 'Adds two numbers.' };
  for (const body of [
    { ...fn, name: '0@demo@add', inputSchema: SCHEMA },
    { ...fn, name: '0@demo@undescribed', description: '', inputSchema: SCHEMA },
    { ...fn, name: '0@demo@untyped' },
    { ...fn, name: '0@demo@agent', kind: 'agent', inputSchema: SCHEMA },
  ]) {
    const answer = await fetch(`${served.metaUrl}/serverless/v1/functions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const { code, message } = (await answer.json()) as { readonly code: number; readonly message: string };
    if (code !== 0) throw new Error(`register of ${body.name} failed: ${code} ${message}`);
  }
  return {
    MCP_URL: `${frontendUrl}/mcp`,
    MCP_SCHEMA: JSON.stringify(SCHEMA),
    MCP_COMMAND: JSON.stringify([process.execPath, join(ROOT, 'dist/main.js'), 'mcp', '--address', frontendUrl]),
  };
}
