import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { keepLastBuild, keepTwoBuilds } from './built-files.ts';

let dist: string;

beforeEach(() => {
  dist = mkdtempSync(join(tmpdir(), 'rookery-dist-'));
  mkdirSync(join(dist, 'dashboard'));
  writeFileSync(join(dist, 'dashboard/page.js'), '');
});

afterEach(() => rmSync(dist, { recursive: true }));

function build(...names: string[]): void {
  for (const name of names) writeFileSync(join(dist, name), '');
  keepTwoBuilds(dist, names);
}

const files = () =>
  readdirSync(dist)
    .filter(name => name !== 'dashboard')
    .sort();

test('keepTwoBuilds keeps the files of the build before, and removes those of older builds', () => {
  build('main.js', 'a-1.js');
  build('main.js', 'a-2.js');
  expect(files()).toEqual(['a-1.js', 'a-2.js', 'built.json', 'main.js']);
  build('main.js', 'a-3.js');
  expect(files()).toEqual(['a-2.js', 'a-3.js', 'built.json', 'main.js']);
  expect(readdirSync(join(dist, 'dashboard'))).toEqual(['page.js']);
});

test('keepTwoBuilds keeps all files when the same build runs again', () => {
  build('main.js', 'a-1.js');
  build('main.js', 'a-1.js');
  expect(files()).toEqual(['a-1.js', 'built.json', 'main.js']);
});

test('keepLastBuild keeps only the files of the last build', () => {
  build('main.js', 'a-1.js');
  build('main.js', 'a-2.js');
  keepLastBuild(dist);
  expect(files()).toEqual(['a-2.js', 'main.js']);
});
