import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { deadlineExceeded, failedPrecondition, unavailable } from '../../core/error.ts';

const AGENT = newInstance(SPEC);
const URL_OF_IT = `/api/agent/${AGENT.id}/exec`;

function frontendWithAgent(): TestFrontend {
  const frontend = testFrontend();
  frontend.instances.put(AGENT);
  return frontend;
}
const exec = (frontend: TestFrontend, payload: unknown) =>
  frontend.send({ method: 'POST', url: URL_OF_IT, payload: JSON.stringify(payload) });

test.each([
  [-1, true],
  [0, false],
  [124, false],
])('a command with return code %i has timed_out %s', async (returncode, timedOut) => {
  await using frontend = frontendWithAgent();
  frontend.instances.onExec = () => ({ returncode, stdout: '', stderr: '', truncated: false });
  expect(await exec(frontend, { command: 'x' })).toMatchObject({ body: { returncode, timed_out: timedOut } });
});

test('exec answers returncode, stdout, stderr and truncated', async () => {
  await using frontend = frontendWithAgent();
  const result = { returncode: 3, stdout: 'out\n', stderr: 'ü', truncated: true };
  frontend.instances.onExec = () => result;
  expect(await exec(frontend, { command: 'x' })).toMatchObject({ status: 200, body: result });
});

test('exec runs a string with /bin/sh -c and default limits', async () => {
  await using frontend = frontendWithAgent();
  await exec(frontend, { command: 'echo $HOME | wc' });
  expect(frontend.instances.execs).toEqual([
    {
      argv: ['/bin/sh', '-c', 'echo $HOME | wc'],
      workingDir: '',
      env: {},
      stdin: '',
      timeoutMs: 300_000,
      maxOutputBytes: 8 * 1024 * 1024,
    },
  ]);
});

test('exec takes a list as an argument vector and passes every field on', async () => {
  await using frontend = frontendWithAgent();
  await exec(frontend, {
    command: ['ls', '-l', ''],
    working_dir: '/tmp',
    env: { A: '1' },
    stdin: 'a\0b',
    timeout: 1.5,
  });
  expect(frontend.instances.execs).toMatchObject([
    { argv: ['ls', '-l', ''], workingDir: '/tmp', env: { A: '1' }, stdin: 'a\0b', timeoutMs: 1500 },
  ]);
});

describe('exec answers 400', () => {
  test.each([
    ['command is required', {}],
    ['command is required', { command: null }],
    ['command is required', { command: '' }],
    ['command must be a string or an array of strings', { command: 5 }],
    ['command must be a string or an array of strings', { command: { a: 1 } }],
    ['command[1] must be a string', { command: ['a', 1] }],
    ['command must name a program', { command: [] }],
    ['command must name a program', { command: [''] }],
    ['command must not contain a NUL character', { command: 'a\0b' }],
    ['working_dir must be a string', { command: 'a', working_dir: 1 }],
    ['env must be an object', { command: 'a', env: [] }],
    ['env.A must be a string', { command: 'a', env: { A: null } }],
    [
      'env.ROOKERY_X cannot be set: names that begin with ROOKERY_ belong to the platform',
      { command: 'a', env: { ROOKERY_X: '' } },
    ],
    ['stdin must be a string', { command: 'a', stdin: 1 }],
    ['timeout must be a number', { command: 'a', timeout: '5' }],
    ['timeout must be between 0.001 and 86400, got 0', { command: 'a', timeout: 0 }],
    ['timeout must be between 0.001 and 86400, got 86401', { command: 'a', timeout: 86_401 }],
  ])('exec answers 400: %s (%#)', async (message, body) => {
    await using frontend = frontendWithAgent();
    expect(await exec(frontend, body)).toMatchObject({
      status: 400,
      body: { code: 400, message: `invalid request body: ${message}` },
    });
    expect(frontend.instances.execs).toEqual([]);
  });
});

test.each([
  [409, failedPrecondition('the instance is not running')],
  [503, unavailable('the zygote does not answer')],
  [504, deadlineExceeded('it took too long')],
])('exec answers a platform failure with status %d', async (status, error) => {
  await using frontend = frontendWithAgent();
  frontend.instances.onExec = () => Promise.reject(error);
  expect(await exec(frontend, { command: 'x' })).toMatchObject({
    status,
    body: { code: status, message: error.message },
  });
});

test('exec answers 404 for an unknown instance', async () => {
  await using frontend = testFrontend();
  expect(await exec(frontend, { command: 'x' })).toMatchObject({
    status: 404,
    body: { code: 404, message: `instance not found: ${AGENT.id}` },
  });
});

test('exec aborts the command when the client disconnects', async () => {
  await using frontend = frontendWithAgent();
  const started = deferred();
  const ended = deferred();
  frontend.instances.onExec = (_, signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => {
        ended.resolve();
        reject(unavailable('the caller went away'));
      });
      started.resolve();
    });
  await frontend.listen();
  const { port } = frontend.app.server.address() as AddressInfo;
  const request = http.request({ port, host: '127.0.0.1', path: URL_OF_IT, method: 'POST' });
  request.on('error', () => {});
  request.end('{"command":"sleep 1000"}');
  await started.promise;
  request.destroy();
  await ended.promise;
});
