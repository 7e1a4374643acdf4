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

test('the URL of the database comes from the setting or from a file, and without both there is none', async () => {
  await writeFile(join(directory, 'url'), `${URL_TEXT}\n`);
  expect((await resolve({})).storage.url).toBeNull();
  expect((await resolve({ 'storage.url': URL_TEXT })).storage.url).toBe(URL_TEXT);
  const config = await resolve({ 'storage.urlFile': 'url' });
  expect(config.storage.url).toBe(URL_TEXT);
  // Nobody's mount gets at the password.
  expect(config.ownPaths).toContain(join(directory, 'url'));
});

test.each([
  [{ 'storage.url': 'mysql://me:secret@db/x' }, /storage\.url must be a URL of a PostgreSQL database/],
  [{ 'storage.url': 'postgres://me:secret@db/a b' }, /storage\.url must be a URL/],
  [{ 'storage.urlFile': 'bad' }, /storage\.urlFile: .*bad must hold a URL of a PostgreSQL database/],
  [{ 'storage.urlFile': 'nowhere' }, /storage\.urlFile: .*nowhere cannot be read: ENOENT/],
  [{ 'storage.url': URL_TEXT, 'storage.urlFile': 'bad' }, /are both set/],
])('the error about %j does not have the password', async (values, sentence) => {
  await writeFile(join(directory, 'bad'), 'me:secret');
  const refusal = await resolve(values).catch((error: Error) => error.message);
  expect(refusal).toMatch(sentence);
  expect(refusal).not.toContain('secret');
});
