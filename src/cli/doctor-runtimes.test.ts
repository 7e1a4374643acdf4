import { expect, test } from 'vitest';
import { type RuntimeFacts, runtimeFindings } from './doctor-runtimes.ts';

const ALL: RuntimeFacts = {
  jdk: version => (version === '17' ? { java: '/jvm/17/bin/java' } : `no Java ${version} was found`),
  jar: { jar: '/rookery-runtime.jar' },
  node: version => (version === '22' ? { path: '/usr/bin/node' } : { problem: `no Node.js ${version} was found` }),
  isolation: ['mount', 'net'],
  ofImages: ['docker'],
};

const find = (name: string, changes: Partial<RuntimeFacts> = {}) =>
  runtimeFindings({ ...ALL, ...changes }).find(finding => finding.name === name);

test('where everything is there, each runtime says what it runs', () => {
  expect(find('go, posix-custom-runtime')).toMatchObject({ status: 'ok' });
  expect(find('java')).toEqual({ name: 'java', status: 'ok', text: 'java17', notes: [] });
  expect(find('http')).toMatchObject({ status: 'ok' });
});

test('without any Java each version says why', () => {
  expect(find('java', { jdk: version => `no Java ${version} was found` })).toMatchObject({
    status: 'warn',
    notes: expect.arrayContaining(['java21: no Java 21 was found.']),
  });
});

test('without the jar it says how to build it', () => {
  expect(find('java', { jar: 'build it with mvn' })).toMatchObject({
    status: 'warn',
    text: 'not available',
    notes: expect.arrayContaining(['build it with mvn.']),
  });
});

test('Node.js is available in the versions that are there; without any each says why', () => {
  expect(find('nodejs')).toEqual({ name: 'nodejs', status: 'ok', text: 'nodejs22', notes: [] });
  const missing = find('nodejs', { node: version => ({ problem: `no Node.js ${version} was found` }) });
  expect(missing).toMatchObject({
    status: 'warn',
    text: 'not available',
    notes: expect.arrayContaining(['nodejs24: no Node.js 24 was found.']),
  });
});

test('http needs network namespaces', () => {
  expect(find('http', { isolation: ['mount'] })).toMatchObject({ status: 'warn', text: 'not available' });
});

test('the command of an image needs docker, and nothing else does', () => {
  expect(find('custom image')).toMatchObject({ status: 'ok' });
  expect(find('custom image', { ofImages: [] })).toMatchObject({ status: 'warn', text: 'not available' });
  expect(find('http', { ofImages: [] })).toMatchObject({ status: 'ok' });
});

test('without the process sandbox none of them is available', () => {
  expect(runtimeFindings({ ...ALL, isolation: null, ofImages: [] }).map(({ status }) => status)).not.toContain('ok');
});
