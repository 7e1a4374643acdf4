import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addDocPages } from './static-pages.ts';

let directory: string;
let app: FastifyInstance;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-docs-'));
  mkdirSync(join(directory, 'guides'));
  writeFileSync(join(directory, 'README.html'), '<h1>Documents</h1>');
  writeFileSync(join(directory, 'guides/jobs.html'), '<h1>Jobs</h1>');
  writeFileSync(join(directory, 'notes.txt'), 'not served');
  app = fastify();
  addDocPages(app, directory);
});
afterAll(async () => {
  await app.close();
  rmSync(directory, { recursive: true });
});

test('a document is served with nosniff and a content security policy that forbids scripts', async () => {
  const { statusCode, headers, body } = await app.inject('/docs/guides/jobs.html');
  expect([statusCode, body]).toEqual([200, '<h1>Jobs</h1>']);
  expect(headers).toMatchObject({ 'content-type': 'text/html; charset=utf-8', 'x-content-type-options': 'nosniff' });
  expect(headers['content-security-policy']).toMatch(/^default-src 'none'; style-src 'self'/);
});

test.each(['/docs', '/docs/'])('%s redirects to the list of documents', async url => {
  const { statusCode, headers } = await app.inject(url);
  expect([statusCode, headers.location]).toEqual([302, '/docs/README.html']);
});

test.each(['/docs/none.html', '/docs/notes.txt', '/docs/../package.json'])('the path %s is answered 404', async url => {
  expect((await app.inject(url)).statusCode).toBe(404);
});

test('/docs is answered 404 when the documents were not built', async () => {
  const other = fastify();
  addDocPages(other, join(directory, 'missing'));
  expect((await other.inject('/docs')).statusCode).toBe(404);
  await other.close();
});
