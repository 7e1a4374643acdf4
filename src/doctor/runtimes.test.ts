import { expect, test } from 'vitest';
import { installersFinding, type RuntimeFacts, runtimeFindings } from './runtimes.ts';

const ALL: RuntimeFacts = {
  jdk: version => (version === '17' ? { java: '/jvm/17/bin/java' } : `no Java ${version} was found`),
  jar: { jar: '/rookery-runtime.jar' },
  node: version => (version === '22' ? { path: '/usr/bin/node' } : { problem: `no Node.js ${version} was found` }),
  isolation: ['mount', 'net'],
  ofImages: ['docker'],
};

const find = (name: string, changes: Partial<RuntimeFacts> = {}) =>
  runtimeFindings({ ...ALL, ...changes }).find(finding => finding.name === name);

test('runtimeFindings reports ok for every runtime when everything is installed', () => {
  expect(find('go, posix-custom-runtime')).toMatchObject({ status: 'ok' });
  expect(find('java')).toEqual({ name: 'java', status: 'ok', text: 'java17', notes: [] });
  expect(find('http')).toMatchObject({ status: 'ok' });
});

test('the finding for java gives a reason per version when no Java is installed', () => {
  expect(find('java', { jdk: version => `no Java ${version} was found` })).toMatchObject({
    status: 'warn',
    notes: expect.arrayContaining(['java21: no Java 21 was found.']),
  });
});

test('the finding for java names the command that builds the jar when the jar is missing', () => {
  expect(find('java', { jar: 'build it with mvn' })).toMatchObject({
    status: 'warn',
    text: 'not available',
    notes: expect.arrayContaining(['build it with mvn.']),
  });
});

test('the finding for nodejs lists the installed versions, or a reason per missing version', () => {
  expect(find('nodejs')).toEqual({ name: 'nodejs', status: 'ok', text: 'nodejs22', notes: [] });
  const missing = find('nodejs', { node: version => ({ problem: `no Node.js ${version} was found` }) });
  expect(missing).toMatchObject({
    status: 'warn',
    text: 'not available',
    notes: expect.arrayContaining(['nodejs24: no Node.js 24 was found.']),
  });
});

test('the http runtime is not available without network namespaces', () => {
  expect(find('http', { isolation: ['mount'] })).toMatchObject({ status: 'warn', text: 'not available' });
});

test('only the custom image runtime needs Docker', () => {
  expect(find('custom image')).toMatchObject({ status: 'ok' });
  expect(find('custom image', { ofImages: [] })).toMatchObject({ status: 'warn', text: 'not available' });
  expect(find('http', { ofImages: [] })).toMatchObject({ status: 'ok' });
});

test('no runtime is available without process sandboxes and image sandboxes', () => {
  expect(runtimeFindings({ ...ALL, isolation: null, ofImages: [] }).map(({ status }) => status)).not.toContain('ok');
});

test('the finding for dependencies names the missing installers', () => {
  const all = { pythonsWithoutVenv: [], hasUv: false, hasNpm: true };
  expect(installersFinding(all)).toEqual({
    name: 'dependencies',
    status: 'ok',
    text: 'installed with pip and npm',
    notes: [],
  });
  const withoutVenv = installersFinding({ ...all, pythonsWithoutVenv: ['3.11'] });
  expect(withoutVenv).toMatchObject({ status: 'warn', text: 'installed with npm' });
  expect(withoutVenv.notes).toEqual([expect.stringContaining('apt install python3-venv')]);
  expect(installersFinding({ ...all, pythonsWithoutVenv: ['3.11'], hasUv: true }).status).toBe('ok');
  expect(installersFinding({ ...all, hasNpm: false }).notes).toEqual([expect.stringContaining('apt install npm')]);
});
