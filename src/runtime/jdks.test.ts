import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findJdk, findRuntimeJar, lookForJdk } from './jdks.ts';

let root: string;
beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-jdks-')));
});
afterEach(() => rmSync(root, { recursive: true }));

/** A Java that says its version in its `release` file, or else when it is asked. */
function jdk(name: string, version: string, says: 'release' | 'program' = 'release'): string {
  const home = join(root, name);
  mkdirSync(join(home, 'bin'), { recursive: true });
  if (says === 'release') writeFileSync(join(home, 'release'), `IMPLEMENTOR="X"\nJAVA_VERSION="${version}"\n`);
  writeFileSync(join(home, 'bin', 'java'), `#!/bin/sh\necho 'openjdk version "${version}" 2026' >&2\n`);
  chmodSync(join(home, 'bin', 'java'), 0o755);
  return home;
}

const look = (version: string, env: Record<string, string> = {}) => lookForJdk(version, { env, jvmDirectory: root });

test('exactly the asked version is taken from the directories of Javas', () => {
  jdk('a-17', '17.0.15');
  const home = jdk('b-21', '21.0.2');
  jdk('c-210', '210.1');
  expect(look('21')).toEqual({ home, java: join(home, 'bin', 'java') });
  expect(look('2')).toBeNull();
  expect(look('11')).toBeNull();
});

test('a version of the form 1.8 is 8', () => {
  const home = jdk('old', '1.8.0_402');
  expect(look('8')?.home).toBe(home);
});

test('one without a release file is asked itself', () => {
  const home = jdk('silent', '17.0.1', 'program');
  expect(look('17')?.home).toBe(home);
});

test('JAVA_HOME_<version> comes first, then JAVA_HOME', () => {
  jdk('17', '17.0.1');
  const own = jdk('elsewhere/own', '17.0.2');
  const home = jdk('elsewhere/home', '17.0.3');
  expect(look('17', { JAVA_HOME_17: own, JAVA_HOME: home })?.home).toBe(own);
  expect(look('17', { JAVA_HOME: home })?.home).toBe(home);
});

test('a variable that names another version is passed over', () => {
  const right = jdk('17', '17.0.1');
  expect(look('17', { JAVA_HOME_17: jdk('elsewhere/21', '21.0.1') })?.home).toBe(right);
});

test('the PATH is followed through links', () => {
  const home = jdk('elsewhere/17', '17.0.1');
  mkdirSync(join(root, 'bin'));
  symlinkSync(join(home, 'bin', 'java'), join(root, 'bin', 'java'));
  expect(look('17', { PATH: `/nowhere:${join(root, 'bin')}` })?.home).toBe(home);
});

test('a Java that is not here is reported with the version and where it is looked for', () => {
  expect(findJdk('4', process.env)).toMatch(/^no Java 4 was found: .*JAVA_HOME_4/);
});

test('the jar is found from any directory below the installation; without it the error says how to build it', () => {
  expect(findRuntimeJar(root)).toMatch(/mvn -B -DskipTests package/);
  const jar = join(root, 'runtimes', 'java', 'target', 'rookery-runtime.jar');
  mkdirSync(join(root, 'runtimes', 'java', 'target'), { recursive: true });
  writeFileSync(jar, '');
  mkdirSync(join(root, 'dist', 'runtime'), { recursive: true });
  expect(findRuntimeJar(join(root, 'dist', 'runtime'))).toEqual({
    jar,
    libraries: join(root, 'runtimes', 'java', 'target', 'lib'),
  });
});
