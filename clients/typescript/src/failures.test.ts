import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { RookeryError } from './error.ts';
import * as failures from './failures.ts';
import { Rookery } from './rookery.ts';

const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
const page = read('docs/reference/errors.md');

test('the table of classes has every code of docs/reference/errors.md and no other', () => {
  const listed = [...page.matchAll(/^\| (\d+) \|/gm)].map(([, code]) => Number(code));
  expect(listed.length).toBeGreaterThan(20);
  expect([...failures.FAILURE_OF_CODE.keys()].toSorted()).toEqual(listed.toSorted());
});

test('every status with which an entry refuses a request has a class of its own', () => {
  const refusals = page.match(/^Refusals by an entry itself \((.*)\)/m)?.[1] ?? '';
  const statuses = [...refusals.matchAll(/\b[345]\d\d\b/g)].map(([status]) => Number(status));
  expect(statuses.length).toBeGreaterThan(8);
  for (const status of statuses) {
    const error = failures.failureOf('no', { status });
    expect(error.constructor, String(status)).not.toBe(RookeryError);
  }
});

test('the clients for TypeScript and Python have the same classes for codes and statuses', () => {
  const python = read('clients/python/src/rookery/_error.py');
  const table = [...python.matchAll(/^ {4}(\d+): (\w+),$/gm)].map(([, code, name]) => [Number(code), name]);
  const ours = [...failures.FAILURE_OF_CODE, ...failures.FAILURE_OF_STATUS].map(([code, { name }]) => [code, name]);
  expect(table).toEqual(ours);
});

test.each([
  [{ status: 500, innerCode: 4002 }, 'ExecutionFailed'],
  [{ status: 500, innerCode: 4010 }, 'Timeout'],
  [{ status: 500 }, 'InternalError'],
  [{ status: 200, code: 4115 }, 'NotFound'],
  [{ status: 503, code: 150431 }, 'Unavailable'],
  [{ status: 429, code: 77 }, 'RateLimited'],
  [{ status: 418 }, 'InvalidRequest'],
  [{ status: 302 }, 'RookeryError'],
  [{}, 'RookeryError'],
])('an answer with %j becomes %s', (details, name) => {
  const error = failures.failureOf('no', details);
  expect(error.constructor.name).toBe(name);
  expect(error).toBeInstanceOf(RookeryError);
  expect(error.name).toBe('RookeryError');
});

test('the failure of an agent call has the class of its inner code and the code of its body', async () => {
  const server = createServer((_, answer) => {
    answer.writeHead(500, { 'x-inner-code': '4002' });
    answer.end('{"code":500,"data":null,"message":"invoke failed: code=4002 err=boom"}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  try {
    const params = { instanceId: 'x' };
    const error: unknown = await rookery.call('invokeAgent', { params, body: {} }).catch(error => error);
    expect(error).toBeInstanceOf(failures.ExecutionFailed);
    expect(error).toMatchObject({ status: 500, code: 500, innerCode: 4002 });
  } finally {
    rookery.close();
    server.close();
  }
});
