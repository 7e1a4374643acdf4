import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { candidates, findNode, findNodeRuntime, lookForNode } from './nodes.ts';

let root: string;
beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-nodes-')));
});
afterEach(() => rmSync(root, { recursive: true }));

/** Creates a program that prints a version and a path as Node would. */
function node(name: string, version: string, executable = join(root, name, 'bin', 'node')): string {
  const path = join(root, name, 'bin', 'node');
  mkdirSync(join(root, name, 'bin'), { recursive: true });
  writeFileSync(path, `#!/bin/sh\nprintf '%s' '${version} ${executable}'\n`);
  chmodSync(path, 0o755);
  return path;
}

test('lookForNode takes exactly the requested major version, in any position', () => {
  const programs = [node('a', '20.20.2'), node('b', '22.1.0'), node('c', '220.1.0')];
  expect(lookForNode('22', programs)).toEqual({ version: '22.1.0', path: programs[1] });
  expect(lookForNode('2', programs)).toBeNull();
  expect(lookForNode('24', programs)).toBeNull();
});

test('lookForNode without a version takes the newest supported Node', () => {
  const programs = [node('a', '20.9.0'), node('b', '22.10.1'), node('c', '22.9.3')];
  expect(lookForNode('', programs)?.path).toBe(programs[1]);
  expect(lookForNode('', [node('old', '18.20.0')])).toBeNull();
});

test('lookForNode resolves the shim of a version manager to the real Node', () => {
  const real = node('real', '22.1.0');
  expect(lookForNode('22', [node('shim', '22.1.0', real)])?.path).toBe(real);
});

test('lookForNode skips a program that is not Node and rechecks a changed program', () => {
  const path = node('broken', 'no version');
  expect(lookForNode('22', [path])).toBeNull();
  node('broken', '22.1.0');
  utimesSync(path, 1, 1);
  expect(lookForNode('22', [path])?.version).toBe('22.1.0');
});

test('candidates lists NODE_HOME_<version>, then PATH, the usual directories and nvm versions', () => {
  const own = node('own', '22.1.0');
  const onPath = node('path', '22.2.0');
  const usual = node('usual', '22.3.0');
  const managed = node('nvm/versions/node/v22.4.0', '22.4.0');
  const environment = {
    PATH: `/nowhere:${join(root, 'path', 'bin')}`,
    NODE_HOME_22: join(root, 'own'),
    NVM_DIR: join(root, 'nvm'),
  };
  expect(candidates(environment, [join(root, 'usual', 'bin')])).toEqual([
    own,
    onPath,
    usual,
    managed,
    process.execPath,
  ]);
});

test('candidates skips a link whose target is missing', () => {
  mkdirSync(join(root, 'bin'));
  symlinkSync(join(root, 'gone'), join(root, 'bin', 'node'));
  expect(candidates({ PATH: join(root, 'bin') }, [])).toEqual([process.execPath]);
});

test('findNode reports a missing version and names NODE_HOME_<version>', () => {
  expect(findNode('4', {})).toEqual({ problem: expect.stringMatching(/^no Node\.js 4 was found: .*NODE_HOME_4$/) });
});

test('findNodeRuntime finds the runtime files of this installation', () => {
  expect(findNodeRuntime()).toMatchObject({ main: expect.stringMatching(/runtimes\/nodejs\/lib\/main\.js$/) });
});
