import { expect, test } from 'vitest';
import { AGENT_CREATE } from './agent.ts';
import { readRegister } from './function-fields.ts';
import { readJobSubmission } from './job.ts';
import { failAtFirst } from './json.ts';
import { LIMITS } from './limits.ts';
import { resolveVariables, SECRET_PUT, secretsOf } from './secret.ts';

const REF = { secret: 'db-password' };
const agent = (env_vars: unknown) =>
  AGENT_CREATE.read({ namespace: 'n', name: 'a', urn: 'u', env_vars }, '', failAtFirst);
const fn = (environment: unknown) =>
  readRegister({ name: '0@a@b', kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512, environment } as never);
const job = (env_vars: unknown) => readJobSubmission({ entrypoint: 'true', runtime_env: { env_vars } }, '');

test('a value of an environment is a text, or names a secret: of an agent, a function and a job', () => {
  const env = { PLAIN: '{"secret": "no"}', KEY: REF };
  expect(agent(env)?.env_vars).toEqual(env);
  expect(fn(env)).toMatchObject({ ok: true, value: { environment: env } });
  const { runtimeEnv, rawRuntimeEnv } = job(env).spec;
  expect([runtimeEnv.envVars, rawRuntimeEnv.env_vars]).toEqual([env, env]);
});

test.each([[1], [true], [[]]])('what is neither is refused as before: %j', value => {
  expect(() => agent({ A: value })).toThrow('invalid request body: env_vars.A must be a string');
  expect(fn({ A: value })).toMatchObject({ ok: false });
  expect(() => job({ A: value })).toThrow('must be a string');
});

test.each([[{}], [{ secret: 1 }], [{ secret: 'a', more: 1 }], [{ Secret: 'a' }]])(
  'an object is a reference, and nothing else: %j',
  value => {
    expect(() => agent({ A: value })).toThrow('env_vars.A must be a string, or {"secret": "<name>"}');
  },
);

test('a name that no secret has is refused', () => {
  expect(() => agent({ A: { secret: 'a b' } })).toThrow('env_vars.A.secret must be 1 to 128 letters');
});

test('variables without secrets are what they were, and nobody is asked', async () => {
  const env = { A: 'a' };
  expect(await resolveVariables('t', env, undefined)).toBe(env);
});

test('each secret is asked for once, with its tenant', async () => {
  const asked: unknown[] = [];
  const source = {
    valuesOf: async (tenant: string, names: readonly string[]) => {
      asked.push([tenant, names]);
      return new Map(names.map(name => [name, `value of ${name}`]));
    },
    check: async () => undefined,
  };
  const env = { A: REF, B: 'b', C: REF, D: { secret: 'd' } };
  expect(secretsOf(env)).toEqual(['db-password', 'd']);
  expect(await resolveVariables('t', env, source)).toEqual({
    A: 'value of db-password',
    B: 'b',
    C: 'value of db-password',
    D: 'value of d',
  });
  expect(asked).toEqual([['t', ['db-password', 'd']]]);
});

test('a service that keeps no secrets names the one that it cannot give', async () => {
  await expect(resolveVariables('t', { A: REF }, undefined)).rejects.toThrow('secret db-password cannot be used');
});

test.each([
  [''],
  ['a\0b'],
  ['\ud800'],
  ['x'.repeat(LIMITS.secretValueBytes + 1)],
  ['ä'.repeat(LIMITS.secretValueBytes / 2 + 1)],
  [1],
  [undefined],
])('a value that no variable can have is refused, and is not in the error: %#', value => {
  const read = () => SECRET_PUT.read({ value }, '', failAtFirst);
  expect(read).toThrow('invalid request body: value');
  if (typeof value === 'string' && value.length > 1) expect(read).not.toThrow(value);
});
