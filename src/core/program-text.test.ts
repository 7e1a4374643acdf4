import { expect, test } from 'vitest';
import { createBody, runtimeSpec } from '../../test/http/frontend.ts';
import { readAgentCreate } from './agent.ts';
import { readExec } from './exec.ts';
import { readRegister, readUpdate } from './function.ts';
import { readJobSubmission } from './job.ts';
import type { JsonObject } from './json.ts';
import { LIMITS } from './limits.ts';
import { readPool } from './pool.ts';
import { readRuntimeEnv } from './runtime-env.ts';

const FUNCTION = { name: '0@demo@hello', kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512 };
const HALF = 'a\ud800b';
const UTF8 = 'must be text that UTF-8 can hold';

const problemOf = (read: () => unknown): string => {
  try {
    const outcome = read() as { ok?: boolean; problems?: readonly string[] };
    return outcome.ok === false ? (outcome.problems?.join('; ') ?? '') : '';
  } catch (error) {
    return (error as Error).message;
  }
};
const create = (body: JsonObject) =>
  problemOf(() => readAgentCreate(createBody(body) as JsonObject, 'default', { defaultSandboxType: 'process' }));
const spec = (changes: JsonObject) => create({ runtime_spec: runtimeSpec(changes) });
const exec = (body: JsonObject) => problemOf(() => readExec(body));
const register = (body: JsonObject) => problemOf(() => readRegister({ ...FUNCTION, ...body }));
const update = (body: JsonObject) => problemOf(() => readUpdate({ revisionId: '20260101000000000', ...body }));

test.each([
  ['env_vars.A', create({ env_vars: { A: HALF } })],
  ['mounts[0].target', create({ mounts: [{ source: '/a', target: HALF }] })],
  ['runtime_spec.codePath', spec({ codePath: HALF })],
  ['runtime_spec.handler', spec({ handler: HALF })],
  ['runtime_spec.extendedHandler.initializer', spec({ extendedHandler: { initializer: HALF } })],
  ['command', exec({ command: HALF })],
  ['command[1]', exec({ command: ['a', HALF] })],
  ['env.A', exec({ command: 'a', env: { A: HALF } })],
  ['working_dir', exec({ command: 'a', working_dir: HALF })],
  ['stdin', exec({ command: 'a', stdin: HALF })],
  ['environment.A', register({ environment: { A: HALF } })],
  ['handler', register({ handler: HALF })],
  ['codePath', register({ codePath: HALF })],
  ['rootfs.mounts[0].target', register({ rootfs: { mounts: [{ source: '/a', target: HALF }] } })],
  ['environment.A', update({ environment: { A: HALF } })],
  ['environment.A', problemOf(() => readPool({ id: 'p', size: 1, environment: { A: HALF } }))],
  ['entrypoint', problemOf(() => readJobSubmission({ entrypoint: HALF }, ''))],
  ['runtime_env.env_vars.A', problemOf(() => readRuntimeEnv({ env_vars: { A: HALF } }, 'runtime_env'))],
])('the field %s is refused when it has half of a surrogate pair', (field, problem) => {
  expect(problem).toContain(`${field} ${UTF8}`);
});

const LONGEST = 'é'.repeat((LIMITS.variableBytes - 'A='.length - 1) / 2) + 'x'.repeat(1);
const TOO_LONG = `${LONGEST}x`;

test.each([
  ['env_vars.A', (A: string) => create({ env_vars: { A } })],
  ['env.A', (A: string) => exec({ command: 'a', env: { A } })],
  ['environment.A', (A: string) => register({ environment: { A } })],
  ['environment.A', (A: string) => update({ environment: { A } })],
  ['environment.A', (A: string) => problemOf(() => readPool({ id: 'p', size: 1, environment: { A } }))],
])('the field %s is refused when the variable is one byte longer than the kernel accepts', (field, problem) => {
  expect(problem(LONGEST)).not.toContain(field);
  expect(problem(TOO_LONG)).toContain(`${field} must have at most 131071 bytes, its name and "=" included`);
});

test.each(['x'.repeat(131_072), ['echo', 'x'.repeat(131_072)]])(
  'a command is refused when an argument is longer than the kernel accepts',
  command => {
    expect(exec({ command })).toContain('must have at most 131071 bytes');
  },
);

test('a variable is refused when its name is too long to add the longest secret value', () => {
  const name = 'A'.repeat(LIMITS.variableBytes - LIMITS.secretValueBytes);
  expect(create({ env_vars: { [name]: { secret: 's' } } })).toContain('must have at most 131071 bytes');
});
