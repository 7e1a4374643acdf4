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

/** Creates a JDK that reports its version in its `release` file or in the output of `java`. */
function jdk(name: string, version: string, says: 'release' | 'program' = 'release'): string {
  const home = join(root, name);
  mkdirSync(join(home, 'bin'), { recursive: true });
  if (says === 'release') writeFileSync(join(home, 'release'), `IMPLEMENTOR="X"\nJAVA_VERSION="${version}"\n`);
  writeFileSync(join(home, 'bin', 'java'), `#!/bin/sh\necho 'openjdk version "${version}" 2026' >&2\n`);
  chmodSync(join(home, 'bin', 'java'), 0o755);
  return home;
}

const look = (version: string, env: Record<string, string> = {}) => lookForJdk(version, { env, jvmDirectory: root });

test('lookForJdk finds exactly the requested version among the installed JDKs', () => {
  jdk('a-17', '17.0.15');
  const home = jdk('b-21', '21.0.2');
  jdk('c-210', '210.1');
  expect(look('21')).toEqual({ home, java: join(home, 'bin', 'java') });
  expect(look('2')).toBeNull();
  expect(look('11')).toBeNull();
});

test('lookForJdk treats version 1.8 as version 8', () => {
  const home = jdk('old', '1.8.0_402');
  expect(look('8')?.home).toBe(home);
});

test('lookForJdk runs java when the JDK has no release file', () => {
  const home = jdk('silent', '17.0.1', 'program');
  expect(look('17')?.home).toBe(home);
});

test('lookForJdk prefers JAVA_HOME_<version>, then JAVA_HOME', () => {
  jdk('17', '17.0.1');
  const own = jdk('elsewhere/own', '17.0.2');
  const home = jdk('elsewhere/home', '17.0.3');
  expect(look('17', { JAVA_HOME_17: own, JAVA_HOME: home })?.home).toBe(own);
  expect(look('17', { JAVA_HOME: home })?.home).toBe(home);
});

test('lookForJdk ignores a variable that points to another version', () => {
  const right = jdk('17', '17.0.1');
  expect(look('17', { JAVA_HOME_17: jdk('elsewhere/21', '21.0.1') })?.home).toBe(right);
});

test('lookForJdk follows links on the PATH', () => {
  const home = jdk('elsewhere/17', '17.0.1');
  mkdirSync(join(root, 'bin'));
  symlinkSync(join(home, 'bin', 'java'), join(root, 'bin', 'java'));
  expect(look('17', { PATH: `/nowhere:${join(root, 'bin')}` })?.home).toBe(home);
});

test('findJdk reports a missing version and where JDKs are searched', () => {
  expect(findJdk('4', process.env)).toMatch(/^no Java 4 was found: .*JAVA_HOME_4/);
});

test('findRuntimeJar finds the jar from a subdirectory, or explains how to build the jar', () => {
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
