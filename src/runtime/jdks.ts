import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Environment } from '../core/environment.ts';
import { execFileSync } from '../lib/child-process.ts';

const VERSION_TIMEOUT_MS = 5_000;
const JVM_DIRECTORY = '/usr/lib/jvm';
const JAR = ['runtimes', 'java', 'target', 'rookery-runtime.jar'];

export interface Jdk {
  /** The directory with `bin/java`, with links resolved. */
  readonly home: string;
  readonly java: string;
}

/** Places to search for Java installations. */
export interface JdkPlaces {
  readonly env: Environment;
  /** A directory with one subdirectory per Java. */
  readonly jvmDirectory: string;
}

const found = new Map<string, Jdk>();

/**
 * Returns the Java of exactly this major version on this host, or a sentence why there is none.
 * Searches `JAVA_HOME_<version>`, `JAVA_HOME`, the directories of /usr/lib/jvm and the PATH. Caches the
 * result while the file exists.
 */
export function findJdk(version: string, environment: Environment): Jdk | string {
  const known = found.get(version);
  if (known !== undefined && existsSync(known.java)) return known;
  const jdk = lookForJdk(version, { env: environment, jvmDirectory: JVM_DIRECTORY });
  if (jdk === null) {
    found.delete(version);
    return `no Java ${version} was found: install it below ${JVM_DIRECTORY}, or name its directory in JAVA_HOME_${version}`;
  }
  found.set(version, jdk);
  return jdk;
}

/** Returns the first Java of this major version in these places; null when there is none. */
export function lookForJdk(version: string, { env, jvmDirectory }: JdkPlaces): Jdk | null {
  const homes = [
    env[`JAVA_HOME_${version}`],
    env.JAVA_HOME,
    ...list(jvmDirectory).map(name => join(jvmDirectory, name)),
    ...(env.PATH ?? '').split(':').map(homeOfPathEntry),
  ];
  for (const home of homes) {
    const jdk = home ? jdkAt(home) : null;
    if (jdk !== null && majorOf(jdk) === version) return jdk;
  }
  return null;
}

export interface RuntimeJar {
  readonly jar: string;
  /** The directory of libraries next to the jar, which a Java older than 16 needs. */
  readonly libraries: string;
}

/** Returns the jar of the Java runtime in this installation, or a sentence how to build it. */
export function findRuntimeJar(from: string = dirname(fileURLToPath(import.meta.url))): RuntimeJar | string {
  let directory = from;
  for (;;) {
    const jar = join(directory, ...JAR);
    if (existsSync(jar)) return { jar, libraries: join(dirname(jar), 'lib') };
    const parent = dirname(directory);
    if (parent === directory) break;
    directory = parent;
  }
  return `${join(...JAR)} does not exist: build it with \`mvn -B -DskipTests package\` in runtimes/java of the installation`;
}

/** Resolves links: a `bin` directory may contain only a link to the Java. */
function homeOfPathEntry(entry: string): string | undefined {
  const java = join(entry, 'java');
  return entry !== '' && existsSync(java) ? dirname(dirname(realpathSync(java))) : undefined;
}

function jdkAt(home: string): Jdk | null {
  if (!existsSync(join(home, 'bin', 'java'))) return null;
  const real = realpathSync(home);
  return { home: real, java: join(real, 'bin', 'java') };
}

/**
 * Returns the major version, for example `17`; `''` when it is unknown.
 * Most installations have it in a file, which saves the start of a virtual machine.
 */
function majorOf({ home, java }: Jdk): string {
  const full = /^JAVA_VERSION="([^"]+)"/m.exec(read(join(home, 'release'))) ?? /version "([^"]+)"/.exec(ask(java));
  return /^(?:1\.)?(\d+)/.exec(full?.[1] ?? '')?.[1] ?? '';
}

function ask(java: string): string {
  try {
    return execFileSync('/bin/sh', ['-c', 'exec "$0" -version 2>&1', java], {
      timeout: VERSION_TIMEOUT_MS,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  } catch {
    return '';
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function list(directory: string): readonly string[] {
  try {
    return readdirSync(directory).toSorted();
  } catch {
    return [];
  }
}
