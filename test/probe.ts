import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, test } from 'vitest';
import { installSchemathesis } from './openapi/schemathesis.ts';
import { whyNoDocker } from './parts/docker.ts';
import { whyNoHelm } from './parts/helm.ts';
import { whyNoComponents, whyNoKubernetes } from './parts/kubernetes-cluster.ts';
import { whyNoS3 } from './parts/s3.ts';

/**
 * Parts that a machine may lack. A suite that needs one is skipped with the reason in its name; the environment variable `REQUIRE`
 * (a comma list: `REQUIRE=docker,go`) turns such a skip into a failure, so that continuous integration cannot lose a suite silently.
 */
export type Part =
  | 'docker'
  | 'supervisor'
  | 'postgres'
  | 'pgbouncer'
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
  | 'pypi'
  | 'schemathesis';

/** What each part needs; null when it is there, else a sentence. */
const probes: Readonly<Record<Part, () => string | null>> = {
  docker: () => (process.env.ROOKERY_TEST_DOCKER_HOST === undefined ? (whyNoDocker() ?? makeImages()) : null),
  supervisor: () => answers('supervisord', ['--version'], 'supervisord is not installed'),
  postgres: () => (postgresBinary() === null ? 'no PostgreSQL server program is installed' : null),
  pgbouncer: () =>
    onPath(['pgbouncer'], SYSTEM_PATH) === null ? 'PgBouncer is not installed (apt-get install pgbouncer)' : null,
  kubernetes: () => whyNoKubernetes(),
  'kubernetes-components': () => whyNoComponents(),
  helm: () => whyNoHelm(),
  browser: () => (browserBinary() === null ? 'no Chromium or Chrome is installed' : null),
  go: () => answers('go', ['version'], 'Go is not installed'),
  s3: () => whyNoS3(),
  java: () => answers('javac', ['-version'], 'no JDK is installed'),
  usernet: () => whyNoUserNetwork(),
  'ordinary-user': () => (process.getuid?.() === 0 ? 'the tests run as root' : null),
  pypi: () => whyNoPypi(),
  root: () => (process.getuid?.() === 0 ? null : 'the tests do not run as root'),
  namespaces: () =>
    answers('unshare', ['--mount', '--pid', '--ipc', '--uts', '--fork', 'true'], 'this machine forbids namespaces'),
  networks: () =>
    answers('unshare', ['--net', 'true'], 'this machine forbids network namespaces, or the tests do not run as root') ??
    (onPath(['nft', 'iptables'], SYSTEM_PATH) === null ? 'neither nft nor iptables is installed' : null),
  schemathesis: () => installSchemathesis(),
};

/** Where programs of the administrator are, which need not be on everybody's path. */
const SYSTEM_PATH = '/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin';
const PROBE_TIMEOUT_MS = 10_000;
const INDEX_TIMEOUT_MS = 60_000;
const IMAGES_TIMEOUT_MS = 300_000;

function answers(program: string, args: readonly string[], otherwise: string): string | null {
  const { status } = spawnSync(program, args, { stdio: 'ignore', timeout: PROBE_TIMEOUT_MS });
  return status === 0 ? null : otherwise;
}

/** For root: what it needs for a test as somebody else, with a device of its own. */
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

/** An index of Python packages, as the pip of this machine is configured. */
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

/** Here and not in a test, whose time is bounded. */
function makeImages(): string | null {
  const program = fileURLToPath(new URL('parts/make-docker-images.ts', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ['--import', 'tsx', program], {
    encoding: 'utf8',
    timeout: IMAGES_TIMEOUT_MS,
  });
  return status === 0 ? null : `the images of the tests cannot be made: ${stderr.trim().split('\n').at(-1)}`;
}

/** Debian keeps the server's programs out of the path, one directory for each major version. */
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

const known = new Map<Part, string | null>();

/** Why a part is not here; null when it is. Probed once in each test file. */
export function whyMissing(part: Part): string | null {
  let reason = known.get(part);
  if (reason === undefined) {
    reason = probes[part]();
    known.set(part, reason);
  }
  return reason;
}

/** The parts that `REQUIRE` names. A name that is no part is an error, since it would otherwise require nothing. */
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

/** A test that nobody runs here, as a skipped one with the reason in its name. */
export function skippedTest(title: string, why: string): void {
  describe.skip(`${title} [skipped, ${why}]`, () => {
    test('cannot run here', () => undefined);
  });
}

const required = requiredParts();

/** `describe` for a suite that needs these parts of the machine. */
export function describeWith(parts: readonly Part[], title: string, body: () => void): void {
  const missing = parts.filter(part => whyMissing(part) !== null);
  if (missing.length === 0) {
    describe(title, body);
    return;
  }
  const why = missing.map(part => `${part}: ${whyMissing(part)}`).join('; ');
  const demanded = missing.filter(part => required.has(part));
  if (demanded.length === 0) {
    // Without its body: that may make things for its tests, and nothing would end them, since a skipped suite runs no hooks.
    skippedTest(title, why);
    return;
  }
  describe(title, () => {
    test(`has what REQUIRE=${demanded.join(',')} demands`, () => {
      throw new Error(`this suite cannot run here: ${why}`);
    });
  });
}
