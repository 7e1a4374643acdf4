import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { Agent } from './agent.ts';
import { Connection, type RookeryOptions } from './connection.ts';
import { AsyncCall, FunctionHandle } from './functions.ts';
import type { Agent as AgentRecord, FunctionVersion } from './generated.ts';
import { Rookery } from './rookery.ts';
import { Sandbox } from './sandboxes.ts';

test('handles show their identity in logs, and neither tokens nor environments', () => {
  const options = { url: 'http://127.0.0.1:1', token: 'hidden' };
  const connection = new Connection(options, {});
  const agent = { instance_id: 'a', name: 'one', env_vars: { KEY: 'hidden' } } as unknown as AgentRecord;
  const version = { name: '0@default@f', versionNumber: 'v1', environment: { KEY: 'hidden' } };
  expect(inspect(new Agent(connection, agent))).toBe("Agent { id: 'a', name: 'one' }");
  expect(inspect({ of: new Sandbox(connection, agent) })).toBe("{ of: Sandbox { id: 'a', name: 'one' } }");
  const handle = new FunctionHandle(connection, version as unknown as FunctionVersion);
  expect(inspect(handle)).toBe("FunctionHandle { name: '0@default@f', version: 'v1' }");
  expect(inspect(new AsyncCall(connection, 'c'))).toBe("AsyncCall { id: 'c' }");
  using rookery = new Rookery(options);
  expect(inspect(rookery, { depth: null, showHidden: true })).not.toContain('hidden');
});

test('a wrong option of the client is refused, and none leads to the service of this machine', () => {
  const made = (options: unknown) => () => new Rookery(options as RookeryOptions);
  expect(made('http://rookery.example')).toThrow('must be an object, such as { url: ');
  expect(made({ address: 'http://rookery.example' })).toThrow(
    'Rookery has no option "address", only url, token, tenant, timeoutMs, retries',
  );
});
