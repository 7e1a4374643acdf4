import { expect, test } from 'vitest';
import { createBody, runtimeSpec } from '../../test/http/frontend.ts';
import { readAgentCreate } from './agent.ts';
import type { JsonObject } from './json.ts';
import { readTtl } from './lifetime.ts';

const specOf = (fields: object) => {
  const body = { ...createBody(), runtime_spec: runtimeSpec(), ...fields } as JsonObject;
  const request = readAgentCreate(body, 'default', { defaultSandboxType: 'process' });
  if (request.mode !== 'inline') throw new Error('the sample is not inline');
  return request.spec;
};

test('a create without the fields has neither labels nor an end', () => {
  const spec = specOf({});
  for (const name of ['labels', 'ttlMs', 'idleMs', 'onExpiry']) expect(spec).not.toHaveProperty(name);
});

test('a create takes labels, times and the action', () => {
  const labels = { app: 'x', 'b c': '' };
  expect(specOf({ labels, ttl_seconds: 1.5, idle_seconds: 60, on_expiry: 'pause' })).toMatchObject({
    ...{ labels, ttlMs: 1500, idleMs: 60_000, onExpiry: 'pause' },
  });
});

const prefix = 'invalid request body: ';

test.each([
  [{ ttl_seconds: 0 }, 'ttl_seconds must be between 1 and 31536000, got 0'],
  [{ idle_seconds: '5' }, 'idle_seconds must be a number'],
  [{ on_expiry: 'stop' }, 'on_expiry must be one of "delete", "pause", got "stop"'],
  [{ labels: { a: 1 } }, 'labels.a must be a string'],
  [{ labels: { '': 'x' } }, 'labels. must have a name of 1 to 256 characters'],
  [
    { labels: Object.fromEntries(Array.from({ length: 65 }, (_, index) => [`l${index}`, 'x'])) },
    'labels must have at most 64 labels',
  ],
])('a create refuses %j', (fields, message) => {
  expect(() => specOf(fields)).toThrow(prefix + message);
});

test('a change of the time to live is in seconds from now, and 0 is no end', () => {
  expect(readTtl({ ttl_seconds: 0.5 })).toEqual({ ttlMs: 500, onlyLater: false });
  expect(readTtl({ ttl_seconds: 0, only_later: true })).toEqual({ ttlMs: 0, onlyLater: true });
  expect(() => readTtl({})).toThrow(`${prefix}ttl_seconds is required`);
  expect(() => readTtl({ ttl_seconds: -1 })).toThrow(`${prefix}ttl_seconds must be between 0 and 31536000, got -1`);
});
