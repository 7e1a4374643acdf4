import { expect, test } from 'vitest';
import type { TemplateStep } from '../core/e2b-templates.ts';
import type { SandboxAccess, StartProcess } from '../sandbox/access.ts';
import { describeStep, expand, runStep, type StepState } from './build-steps.ts';

const STATE: StepState = { user: 'user', workingDir: '', env: {} };
const stepOf = (type: TemplateStep['type'], ...args: string[]) => ({
  type,
  args,
  filesHash: 'f'.repeat(64),
  force: false,
});

/** Runs a step in a sandbox whose commands write `output` and exit with `code`. */
async function run(
  step: TemplateStep,
  state: StepState,
  { output = '', code = 0, isOnHost = true, kind = 'stderr' as 'stdout' | 'stderr' } = {},
) {
  const requests: StartProcess[] = [];
  const lines: string[] = [];
  const startProcess = async (request: StartProcess) => {
    requests.push(request);
    const chunks = (async function* () {
      for (const byte of Buffer.from(output)) yield { kind, data: Buffer.from([byte]) };
    })();
    const ended = Promise.resolve({ code, signal: null, timedOut: false });
    return { pid: 2, output: chunks, ended, close: () => undefined };
  };
  const context = {
    access: { startProcess } as unknown as SandboxAccess,
    signal: new AbortController().signal,
    ...{ isOnHost, sandboxEnv: { PATH: '/bin' }, buildEnv: { PIP_NO_CACHE_DIR: '1' } },
    line: (text: string) => void lines.push(text),
  };
  const after = await runStep(step, state, context);
  return { after, requests, lines };
}

test('runs a command as the current user with the variables of the template', async () => {
  const state = { user: 'user', workingDir: '/srv', env: { A: '1' } };
  const { after, requests, lines } = await run(stepOf('RUN', 'make it'), state, { output: 'one\r\ntwö\nrest' });
  expect(after).toBe(state);
  expect(requests).toMatchObject([{ user: 'user', workingDir: '/srv', env: { A: '1', PIP_NO_CACHE_DIR: '1' } }]);
  expect(requests[0]?.argv).toEqual(['/bin/bash', '-l', '-c', 'make it', 'bash']);
  expect(lines).toEqual(['one', 'twö', 'rest']);
});

test('fails with the last line of the output, and names the host for packages of the system', async () => {
  const failed = run(stepOf('RUN', 'false', 'root'), STATE, { output: 'first\nno way\n\n', code: 7 });
  await expect(failed).rejects.toThrow('the command exited with status 7: no way');
  const apt = run(stepOf('RUN', 'apt-get update && apt-get install no-such-package-x'), STATE, { code: 100 });
  await expect(apt).rejects.toThrow('/usr belongs to the host');
  await expect(apt).rejects.toThrow('install them on the host (missing there: no-such-package-x)');
});

test('runs the installation of a package of the system in the sandbox of an image', async () => {
  const step = stepOf('RUN', 'apt-get install -y bash');
  const { requests } = await run(step, STATE, { isOnHost: false });
  expect(requests[0]?.argv.slice(3, 4)).toEqual(['apt-get install -y bash']);
  const failed = run(step, STATE, { isOnHost: false, output: 'no network', code: 100 });
  await expect(failed).rejects.toThrow(/status 100: no network$/);
});

test('names the file of a package that would run with rights of another account', async () => {
  const output = "error setting permissions of './usr/bin/x': Operation not permitted\nE: dpkg failed";
  const failed = run(stepOf('RUN', 'apt-get install -y x'), STATE, { isOnHost: false, output, code: 100 });
  await expect(failed).rejects.toThrow(
    /: E: dpkg failed; \.\/usr\/bin\/x of the package runs with rights of another account/,
  );
});

test('fails with the reason of npm, which is above the name of its log file', async () => {
  const output = 'npm error code E404\nnpm error 404 no x\nnpm error A complete log of this run can be found in: /x\n';
  const failed = run(stepOf('RUN', 'npm install x'), STATE, { output, code: 1 });
  await expect(failed).rejects.toThrow(/status 1: npm error code E404; npm error 404 no x$/);
});

test('keeps directory, user and variables for later steps', async () => {
  expect((await run(stepOf('WORKDIR', 'a/../b'), STATE)).after.workingDir).toBe('/home/user/b');
  expect((await run(stepOf('WORKDIR', '~'), { ...STATE, user: 'root' })).after.workingDir).toBe('/root');
  expect((await run(stepOf('USER', 'root'), STATE)).after.user).toBe('root');
  const { after } = await run(stepOf('ENV', 'PATH', '/x:$PATH', 'B', `\${A}-$C`), { ...STATE, env: { A: '1' } });
  expect(after.env).toEqual({ A: '1', PATH: '/x:/bin', B: '1-' });
});

test('takes the name of the account from a number, and drops a group', async () => {
  const { after, lines } = await run(stepOf('USER', '1000:1000'), STATE, { output: 'node\n', kind: 'stdout' });
  expect([after.user, lines]).toEqual(['node', []]);
  expect((await run(stepOf('USER', 'node:staff'), STATE)).after.user).toBe('node');
});

test('copies as root for the owner, and keeps the slash of a target', async () => {
  const { requests } = await run(stepOf('COPY', './a', 'b/', '', '0600'), { ...STATE, workingDir: '/w' });
  const upload = `/opt/rookery/upload/${'f'.repeat(64)}/files`;
  expect(requests[0]?.user).toBe('root');
  expect(requests[0]?.argv.slice(5)).toEqual([upload, 'a', '/w/b/', 'user', '0600']);
});

test('describes a step in one line', () => {
  expect(describeStep(stepOf('RUN', 'a\n  b', ''))).toBe('RUN a b');
  expect(describeStep(stepOf('RUN', 'pip install x', 'root'))).toBe('RUN pip install x');
  expect(describeStep(stepOf('RUN', 'x'.repeat(500))).length).toBe(200);
});

test('expands only names of variables', () => {
  expect(expand(`$A \${A} $$ $(x) \${`, { A: '1' })).toBe('1 1 $$ $(x) ${');
});
