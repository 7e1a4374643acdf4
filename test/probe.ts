import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, test } from 'vitest';
import { e2bPackages } from './e2b/environments.ts';
import { enginePackages } from './engines/engines.ts';
import { lambdaPackages } from './lambda/packages.ts';
import { installSchemathesis } from './openapi/schemathesis.ts';
import { whyNoDocker } from './parts/docker.ts';
import { whyNoHelm } from './parts/helm.ts';
import { whyNoComponents, whyNoKubernetes } from './parts/kubernetes-cluster.ts';
import { whyNoS3 } from './parts/s3.ts';

/**
 * Parts that a machine may lack. A suite that needs a missing part is skipped, with the reason in its name.
 * `REQUIRE=docker,go` turns such a skip into a failure, so that CI cannot lose a suite silently.
 */
export type Part =
  | 'docker'
  | 'supervisor'
  | 'postgres'
  | 'pgbouncer'
  | 'nginx'
  | 'kubernetes'
  | 'kubernetes-components'
  | 'helm'
  | 'browser'
  | 'go'
  | 's3'
  | 'java'
  | 'root'
  | 'namespaces'
  | 'networks'
  | 'usernet'
  | 'ordinary-user'
  | 'e2b'
  | 'lambda'
  | 'bun'
  | 'deno'
  | 'pypi'
  | 'zsh'
  | 'fish'
  | 'schemathesis';

/** Probes of all parts; each returns null when its part is available, otherwise a sentence. */
const probes: Readonly<Record<Part, () => string | null>> = {
  docker: () => (process.env.ROOKERY_TEST_DOCKER_HOST === undefined ? (whyNoDocker() ?? makeImages()) : null),
  supervisor: () => answers('supervisord', ['--version'], 'supervisord is not installed'),
  postgres: () => (postgresBinary() === null ? 'no PostgreSQL server program is installed' : null),
  pgbouncer: () =>
    onPath(['pgbouncer'], SYSTEM_PATH) === null ? 'PgBouncer is not installed (apt-get install pgbouncer)' : null,
  nginx: () => (onPath(['nginx'], SYSTEM_PATH) === null ? 'nginx is not installed (apt-get install nginx)' : null),
  kubernetes: () => whyNoKubernetes(),
  'kubernetes-components': () => whyNoComponents(),
  helm: () => whyNoHelm(),
  browser: () => (browserBinary() === null ? 'no Chromium or Chrome is installed' : null),
  go: () => answers('go', ['version'], 'Go is not installed'),
  s3: () => whyNoS3(),
  java: () => answers('javac', ['-version'], 'no JDK is installed'),
  usernet: () => whyNoUserNetwork(),
  'ordinary-user': () => (process.getuid?.() === 0 ? 'the tests run as root' : null),
  e2b: () => e2bPackages.whyMissing(),
  lambda: () => lambdaPackages.whyMissing(),
  bun: () => enginePackages.whyMissing(['node-bun']),
  deno: () => enginePackages.whyMissing(['node-deno']),
  pypi: () => whyNoPypi(),
  zsh: () => answers('zsh', ['--version'], 'zsh is not installed'),
  fish: () => answers('fish', ['--version'], 'fish is not installed'),
  root: () => (process.getuid?.() === 0 ? null : 'the tests do not run as root'),
  namespaces: () =>
    answers('unshare', ['--mount', '--pid', '--ipc', '--uts', '--fork', 'true'], 'this machine forbids namespaces'),
  networks: () =>
    answers('unshare', ['--net', 'true'], 'this machine forbids network namespaces, or the tests do not run as root') ??
    (onPath(['nft', 'iptables'], SYSTEM_PATH) === null ? 'neither nft nor iptables is installed' : null),
  schemathesis: () => installSchemathesis(),
};

/** The command that installs each part, or another requirement of the machine. */
const INSTALL: Readonly<Record<Part, string>> = {
  docker: 'apt-get install docker.io debootstrap, as root',
  supervisor: 'apt-get install supervisor',
  postgres: 'apt-get install postgresql',
  pgbouncer: 'apt-get install pgbouncer',
  nginx: 'apt-get install nginx',
  kubernetes: 'set KUBECONFIG to a cluster that is free for tests',
  'kubernetes-components': 'needs the programs of a one-node cluster beside the repository',
  helm: 'go install helm.sh/helm/v3/cmd/helm@v3.19.4',
  browser: 'apt-get install chromium',
  go: 'apt-get install golang',
  s3: 'apt-get install golang',
  java: 'apt-get install default-jdk',
  root: 'run the tests as root',
  namespaces: 'run the tests where namespaces are allowed',
  networks: 'apt-get install nftables, as root',
  usernet: 'apt-get install passt',
  'ordinary-user': 'run the tests as an ordinary user',
  e2b: 'node --import tsx test/e2b/install.ts',
  lambda: 'node --import tsx test/lambda/install.ts',
  bun: 'node --import tsx test/engines/install.ts',
  deno: 'node --import tsx test/engines/install.ts',
  pypi: 'set pip up for an index of packages',
  zsh: 'apt-get install zsh',
  fish: 'apt-get install fish',
  schemathesis: 'set pip up for an index of packages',
};

export function isPart(name: string): name is Part {
  return Object.hasOwn(INSTALL, name);
}

export function installHint(part: Part): string {
  return INSTALL[part];
}

/** Directories of the administrator's programs, which `PATH` may lack. */
const SYSTEM_PATH = '/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin';
const PROBE_TIMEOUT_MS = 10_000;
const INDEX_TIMEOUT_MS = 60_000;
const IMAGES_TIMEOUT_MS = 300_000;

function answers(program: string, args: readonly string[], otherwise: string): string | null {
  const { status } = spawnSync(program, args, { stdio: 'ignore', timeout: PROBE_TIMEOUT_MS });
  return status === 0 ? null : otherwise;
}

/**
 * Returns why user-mode networking is missing, or null. Root needs the program; other users also need a
 * device.
 */
function whyNoUserNetwork(): string | null {
  if (onPath(['pasta', 'slirp4netns'], '/usr/local/bin:/usr/bin:/bin') === null) {
    return 'neither pasta (apt-get install passt) nor slirp4netns is installed';
  }
  if (process.getuid?.() === 0) return null;
  try {
    closeSync(openSync('/dev/net/tun', 'r+'));
    return null;
  } catch {
    return '/dev/net/tun cannot be opened';
  }
}

/** Returns why pip reaches no package index with the configuration of this machine, or null. */
function whyNoPypi(): string | null {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-pypi-'));
  const args = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--retries', '0', '--dest', directory, 'six==1.17.0'];
  try {
    const { status } = spawnSync('python3', args, { stdio: 'ignore', timeout: INDEX_TIMEOUT_MS });
    return status === 0 ? null : 'pip reaches no index of packages';
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Makes the images before the tests run, since tests have a time limit. Returns an error sentence, or null.
 */
function makeImages(): string | null {
  const program = fileURLToPath(new URL('parts/make-docker-images.ts', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', program], {
    encoding: 'utf8',
    timeout: IMAGES_TIMEOUT_MS,
  });
  return status === 0 ? null : `the images of the tests cannot be made: ${stderr.trim().split('\n').at(-1)}`;
}

/**
 * Returns the path of `postgres`, or null. Debian has one directory outside of `PATH` for each major version.
 */
export function postgresBinary(): string | null {
  const candidates = Array.from({ length: 8 }, (_, index) => `/usr/lib/postgresql/${20 - index}/bin/postgres`);
  return candidates.find(existsSync) ?? onPath(['postgres']);
}

export function browserBinary(): string | null {
  return onPath(['chromium', 'chromium-browser', 'google-chrome', 'chrome']);
}

function onPath(names: readonly string[], path = process.env.PATH ?? ''): string | null {
  for (const directory of path.split(':')) {
    for (const name of names) if (existsSync(`${directory}/${name}`)) return `${directory}/${name}`;
  }
  return null;
}

/** Quick tests for the parts whose tests take minutes. Unlike the probes, these start and make nothing. */
const LONG_PARTS: readonly (() => boolean)[] = [
  () => onPath(['dockerd']) !== null,
  () => onPath(['supervisord']) !== null,
  () => postgresBinary() !== null,
  () => whyNoKubernetes() === null,
  () => browserBinary() !== null,
  () => onPath(['go']) !== null,
  () => onPath(['javac']) !== null,
];

/** Returns the share of the parts with long tests that this machine has, from 0 to 1. */
export function shareOfLongParts(): number {
  return LONG_PARTS.filter(isThere => isThere()).length / LONG_PARTS.length;
}

const known = new Map<Part, string | null>();

/** Returns why a part is missing, or null when it is available. Probes each part once in each test file. */
export function whyMissing(part: Part): string | null {
  let reason = known.get(part);
  if (reason === undefined) {
    reason = probes[part]();
    known.set(part, reason);
  }
  return reason;
}

/**
 * Returns the parts that `REQUIRE` names. Throws for an unknown name, which would otherwise require nothing.
 */
function requiredParts(): ReadonlySet<string> {
  const names = (process.env.REQUIRE ?? '').split(',').map(name => name.trim());
  const parts = new Set(names.filter(name => name !== ''));
  for (const name of parts) {
    if (!Object.hasOwn(probes, name)) {
      throw new Error(`REQUIRE names "${name}", which is none of ${Object.keys(probes).join(', ')}`);
    }
  }
  return parts;
}

/** Registers a skipped test with the reason in its name. */
export function skippedTest(title: string, why: string): void {
  describe.skip(`${title} [skipped, ${why}]`, () => {
    test('cannot run here', () => undefined);
  });
}

const required = requiredParts();

/** Registers a `describe` block for a suite that needs these parts of the machine. */
export function describeWith(parts: readonly Part[], title: string, body: () => void): void {
  const missing = parts.filter(part => whyMissing(part) !== null);
  if (missing.length === 0) {
    describe(title, body);
    return;
  }
  const why = missing.map(part => `${part}: ${whyMissing(part)}`).join('; ');
  const demanded = missing.filter(part => required.has(part));
  if (demanded.length === 0) {
    // Vitest runs no hooks of a skipped suite, so resources that its body makes would remain. The body is
    // omitted.
    skippedTest(title, why);
    return;
  }
  describe(title, () => {
    test(`has what REQUIRE=${demanded.join(',')} demands`, () => {
      throw new Error(`this suite cannot run here: ${why}`);
    });
  });
}
