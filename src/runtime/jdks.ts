import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Environment } from '../core/environment.ts';
import { execFileSync } from '../lib/child-process.ts';

const VERSION_TIMEOUT_MS = 5_000;
const JVM_DIRECTORY = '/usr/lib/jvm';
const JAR = ['runtimes', 'java', 'target', 'rookery-runtime.jar'];

export interface Jdk {
  /** The directory with `bin/java`, links resolved. */
  readonly home: string;
  readonly java: string;
}

/** Where Javas are looked for. */
export interface JdkPlaces {
  readonly env: Environment;
  /** Holds a directory per Java. */
  readonly jvmDirectory: string;
}

const found = new Map<string, Jdk>();

/**
 * The Java of exactly this major version on this host, or the sentence why there is none. Looked for in `JAVA_HOME_<version>`,
 * `JAVA_HOME`, the directories of /usr/lib/jvm and the PATH; what was found is kept while it is there.
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

/** The first Java of this major version in these places, null when there is none. */
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
  /** The libraries beside it, which a Java older than 16 needs. */
  readonly libraries: string;
}

/** The jar of the Java runtime in this installation, or the sentence how to make it. */
export function findRuntimeJar(from: string = dirname(fileURLToPath(import.meta.url))): RuntimeJar | string {
  let directory = from;
  for (;;) {
    const jar = join(directory, ...JAR);
    if (existsSync(jar)) return { jar, libraries: join(dirname(jar), 'lib') };
    const parent = dirname(directory);
    if (parent === directory) break;
    directory = parent;
  }
  return `${join(...JAR)} is not there: build it with \`mvn -B -DskipTests package\` in runtimes/java of the installation`;
}

/** A `bin` directory may hold only a link to the Java. */
function homeOfPathEntry(entry: string): string | undefined {
  const java = join(entry, 'java');
  return entry !== '' && existsSync(java) ? dirname(dirname(realpathSync(java))) : undefined;
}

function jdkAt(home: string): Jdk | null {
  if (!existsSync(join(home, 'bin', 'java'))) return null;
  const real = realpathSync(home);
  return { home: real, java: join(real, 'bin', 'java') };
}

/** `17`; `''` when it cannot be known. Most installations say it in a file, which spares the start of a machine. */
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
