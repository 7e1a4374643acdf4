import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { VERSION } from '../src/version.ts';
import { readClientDocument } from './client-types.ts';
import { ROOT } from './command.ts';

const document = readClientDocument();

test('every object in the document of the clients has a name', () => {
  const anonymous: string[] = [];
  const look = (value: unknown, place: string) => {
    if (typeof value !== 'object' || value === null) return;
    const { type, properties } = value as { type?: unknown; properties?: unknown };
    const isNamed = /^\.components\.schemas\.\w+$/.test(place);
    if (type === 'object' && typeof properties === 'object' && !isNamed) anonymous.push(place);
    for (const [name, inner] of Object.entries(value)) look(inner, `${place}.${name}`);
  };
  look(document, '');
  expect(anonymous).toEqual([]);
});

test('every reference has a target, and each operation has a different id', () => {
  const text = JSON.stringify(document);
  for (const [, kind = '', name = ''] of text.matchAll(/"#\/components\/(schemas|parameters)\/([^"]+)"/g)) {
    expect(document.components[kind as 'schemas' | 'parameters']).toHaveProperty([name]);
  }
  const ids = Object.values(document.paths).flatMap(methods => Object.values(methods).map(one => one.operationId));
  expect(new Set(ids).size).toBe(ids.length);
});

test('the clients have the version of the service', () => {
  const packed = JSON.parse(readFileSync(join(ROOT, 'clients/typescript/package.json'), 'utf8')) as { version: string };
  expect(packed.version).toBe(VERSION);
  expect(readFileSync(join(ROOT, 'clients/python/pyproject.toml'), 'utf8')).toContain(`\nversion = "${VERSION}"\n`);
});
