import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Given, resolveConfig } from './config.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-storage-url-'));
});
afterEach(() => rm(directory, { recursive: true }));

const URL_TEXT = 'postgres://me:secret@db:5432/rookery';
const given = (values: Readonly<Record<string, string>>): Given[] =>
  Object.entries(values).map(([path, text]) => ({ path, value: { text }, where: 'here', base: directory }));
const resolve = (values: Readonly<Record<string, string>>) =>
  resolveConfig(given(values), { environment: {}, isRoot: false });

test('storage.url is read from the setting or from a file, and is null without both', async () => {
  await writeFile(join(directory, 'url'), `${URL_TEXT}\n`);
  expect((await resolve({})).storage.url).toBeNull();
  expect((await resolve({ 'storage.url': URL_TEXT })).storage.url).toBe(URL_TEXT);
  const config = await resolve({ 'storage.urlFile': 'url' });
  expect(config.storage.url).toBe(URL_TEXT);
  // Paths of the service cannot be mounted, so the password cannot be read from a sandbox.
  expect(config.ownPaths).toContain(join(directory, 'url'));
});

test.each([
  [{ 'storage.url': 'mysql://me:secret@db/x' }, /storage\.url must be a URL of a PostgreSQL database/],
  [{ 'storage.url': 'postgres://me:secret@db/a b' }, /storage\.url must be a URL/],
  [{ 'storage.url': 'postgres://odd:hunter2secret#x@db/x' }, /with @ : \/ # \? % of the password percent-encoded/],
  [{ 'storage.url': 'postgres://odd:p@secret#w/1@db:5432/x' }, /must be a URL/],
  [{ 'storage.url': 'postgres://odd:secret?w@db/x' }, /must be a URL/],
  [{ 'storage.url': 'postgres://odd:secret/w@db/x' }, /must be a URL/],
  [{ 'storage.url': 'postgres://odd:secret%zz@db/x' }, /must be a URL/],
  [{ 'storage.url': 'postgres://odd:secret@db:port/x' }, /must be a URL/],
  [{ 'storage.urlFile': 'bad' }, /storage\.urlFile: .*bad must hold a URL of a PostgreSQL database/],
  [{ 'storage.urlFile': 'nowhere' }, /storage\.urlFile: .*nowhere cannot be read: ENOENT/],
  [{ 'storage.url': URL_TEXT, 'storage.urlFile': 'bad' }, /are both set/],
])('the error about %j does not contain the password', async (values, sentence) => {
  await writeFile(join(directory, 'bad'), 'me:secret');
  const refusal = await resolve(values).catch((error: Error) => error.message);
  expect(refusal).toMatch(sentence);
  expect(refusal).not.toContain('secret');
});

test.each([
  'postgres://db',
  'postgresql://me@db:5432/rookery?sslmode=verify-full',
  'postgres://me:p@ss@db/rookery',
  'postgres://me:p%40ss%23%2F1@db/rookery',
  'postgres:///rookery?host=/run/postgresql',
  'postgres://me:x@[::1]:5432/rookery',
])('storage.url accepts %s', async url => {
  expect((await resolve({ 'storage.url': url })).storage.url).toBe(url);
});
