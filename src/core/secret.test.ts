import { expect, test } from 'vitest';
import { AGENT_CREATE } from './agent.ts';
import { readRegister } from './function.ts';
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

test('a variable of an agent, a function or a job is a text or a reference to a secret', () => {
  const env = { PLAIN: '{"secret": "no"}', KEY: REF };
  expect(agent(env)?.env_vars).toEqual(env);
  expect(fn(env)).toMatchObject({ ok: true, value: { environment: env } });
  const { runtimeEnv, rawRuntimeEnv } = job(env).spec;
  expect([runtimeEnv.envVars, rawRuntimeEnv.env_vars]).toEqual([env, env]);
});

test.each([[1], [true], [[]]])('a variable that is neither a text nor a reference is refused: %j', value => {
  expect(() => agent({ A: value })).toThrow('invalid request body: env_vars.A must be a string');
  expect(fn({ A: value })).toMatchObject({ ok: false });
  expect(() => job({ A: value })).toThrow('must be a string');
});

test.each([[{}], [{ secret: 1 }], [{ secret: 'a', more: 1 }], [{ Secret: 'a' }]])(
  "an object with other fields than a secret's name is refused: %j",
  value => {
    expect(() => agent({ A: value })).toThrow('env_vars.A must be a string, or {"secret": "<name>"}');
  },
);

test('a reference is refused when its name is not a valid secret name', () => {
  expect(() => agent({ A: { secret: 'a b' } })).toThrow('env_vars.A.secret must be 1 to 128 letters');
});

test('resolveVariables returns the same object without a lookup when no variable is a secret', async () => {
  const env = { A: 'a' };
  expect(await resolveVariables('t', env, undefined)).toBe(env);
});

test('resolveVariables requests each secret once, with its tenant', async () => {
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

test('resolveVariables fails with the name of the secret when the service stores no secrets', async () => {
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
])('an invalid secret value is refused, and the error does not contain it: %#', value => {
  const read = () => SECRET_PUT.read({ value }, '', failAtFirst);
  expect(read).toThrow('invalid request body: value');
  if (typeof value === 'string' && value.length > 1) expect(read).not.toThrow(value);
});
