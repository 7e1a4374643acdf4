import { constants } from 'node:fs';
import { access, mkdtemp, rm, stat, statfs } from 'node:fs/promises';
import { get } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Config } from '../config/config.ts';
import { messageOf } from '../core/error.ts';
import { runsImages } from '../core/sandbox-types.ts';

/** Result of a check. `fail`: the service cannot work here; `warn`: a feature is missing. */
export interface Finding {
  readonly name: string;
  readonly status: 'ok' | 'warn' | 'fail';
  readonly text: string;
  /** Problems and remedies, one sentence each. */
  readonly notes: readonly string[];
}

/** Shown members of a driver's probe (`ProbeResult` of `sandbox/driver.ts`). */
type Probe =
  | {
      readonly available: true;
      readonly capabilities: { readonly isolation: readonly string[] };
      readonly degraded: readonly string[];
    }
  | { readonly available: false; readonly reason: string };

const MIN_NODE = [20, 19] as const;
const MIN_FREE_BYTES = 1024 ** 3;
const HEALTH_TIMEOUT_MS = 2000;

export function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  const isEnough = major > MIN_NODE[0] || (major === MIN_NODE[0] && minor >= MIN_NODE[1]);
  const notes = isEnough ? [] : [`Rookery needs Node ${MIN_NODE.join('.')} or newer.`];
  return { name: 'node', status: isEnough ? 'ok' : 'fail', text: version, notes };
}

/** Checks that the directory, or its nearest existing parent, is writable. */
export async function checkDataDir(dataDir: string): Promise<Finding> {
  const name = 'data directory';
  let place = dataDir;
  while ((await stat(place).catch(() => null)) === null && dirname(place) !== place) place = dirname(place);
  const isThere = place === dataDir;
  try {
    if (!(await stat(place)).isDirectory()) {
      return { name, status: 'fail', text: dataDir, notes: [`${place} is not a directory.`] };
    }
    await access(place, constants.W_OK | constants.X_OK);
  } catch (error) {
    const note = `${place} cannot be written (${messageOf(error)}). Choose another one with --data-dir.`;
    return { name, status: 'fail', text: dataDir, notes: [note] };
  }
  const { bavail, bsize } = await statfs(place);
  const freeBytes = bavail * bsize;
  const text = `${dataDir}${isThere ? '' : ' (is made at the first start)'}, ${gib(freeBytes)} free`;
  if (freeBytes >= MIN_FREE_BYTES) return { name, status: 'ok', text, notes: [] };
  return { name, status: 'warn', text, notes: ['There is little room for the logs of instances.'] };
}

/** Checks SQLite with a temporary database, apart from that of a running service. */
export async function checkDatabase(open: (file: string) => Promise<{ destroy(): Promise<void> }>): Promise<Finding> {
  const name = 'database';
  const directory = await mkdtemp(join(tmpdir(), 'rookery-doctor-'));
  try {
    const database = await open(join(directory, 'probe.db'));
    await database.destroy();
    return { name, status: 'ok', text: 'SQLite opens, and takes every migration', notes: [] };
  } catch (error) {
    return { name, status: 'fail', text: 'SQLite does not work here', notes: [messageOf(error)] };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Checks the connection only: the next start migrates. */
export async function checkPostgres(place: string, probe: () => Promise<string>): Promise<Finding> {
  const name = 'database';
  try {
    return { name, status: 'ok', text: `PostgreSQL ${await probe()} answers at ${place}`, notes: [] };
  } catch (error) {
    return { name, status: 'fail', text: `PostgreSQL at ${place} cannot be used`, notes: [messageOf(error)] };
  }
}

export async function checkPort(name: string, host: string, port: number): Promise<Finding> {
  const place = `${host}:${port}`;
  if (port === 0) return { name, status: 'ok', text: 'any free port', notes: [] };
  const problem = await bindProblem(host, port);
  if (problem === null) return { name, status: 'ok', text: `${place} is free`, notes: [] };
  if (problem.code === 'EADDRINUSE' && (await answersHealth(host, port))) {
    return { name, status: 'ok', text: `a service answers at ${place}`, notes: [] };
  }
  const isTaken = problem.code === 'EADDRINUSE';
  const note = isTaken ? 'Another program has it: choose another port, or stop that program.' : problem.message;
  return { name, status: 'fail', text: `${place} ${isTaken ? 'is taken' : 'cannot be bound'}`, notes: [note] };
}

/** Checks the collector by sending it an empty export. */
export async function checkCollector(url: string | null): Promise<Finding> {
  const name = 'traces';
  if (url === null) return { name, status: 'ok', text: 'off: tracing.endpoint is not set', notes: [] };
  try {
    const { status } = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/x-protobuf' },
      signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS),
    });
    if (status === 401 || status === 403) {
      return { name, status: 'ok', text: `${url} asks for a key (OTEL_EXPORTER_OTLP_HEADERS)`, notes: [] };
    }
    if (status < 300) return { name, status: 'ok', text: `${url} takes spans`, notes: [] };
    const note = `It answered ${status} to an export. Spans are sent as OTLP over HTTP: of a collector name port 4318.`;
    return { name, status: 'warn', text: `${url} takes no spans`, notes: [note] };
  } catch (error) {
    const why = error instanceof TypeError && error.cause !== undefined ? error.cause : error;
    return {
      name,
      status: 'warn',
      text: `no service answers at ${url}`,
      notes: [`${messageOf(why)}. Spans are lost meanwhile.`],
    };
  }
}

export const PYTHON_VERSIONS = Array.from({ length: 9 }, (_, index) => `3.${index + 6}`);

/**
 * Checks the versions of Python. `find` rejects for a missing version. A configured interpreter that does not
 * work gets a note.
 */
export async function pythonFinding(
  find: (version: string) => Promise<{ readonly version: string; readonly path: string }>,
  config: Pick<Config, 'defaultExecutor' | 'process' | 'jobs'>,
): Promise<Finding> {
  const ofJobs = config.jobs.python;
  const configured = [...Object.keys(config.process.pythons), ...(ofJobs === '' ? [] : [ofJobs])];
  const versions = [...new Set([...PYTHON_VERSIONS, ...configured])];
  const notes: string[] = [];
  const found = await Promise.all(
    versions.map(async version => {
      try {
        return (await find(version)).version;
      } catch (error) {
        if (version === ofJobs) notes.push(`jobs.python is ${ofJobs}: ${messageOf(error)}; jobs have no python then.`);
        else if (configured.includes(version)) notes.push(messageOf(error));
        return null;
      }
    }),
  );
  const here = found.filter(version => version !== null);
  if (here.length > 0)
    return { name: 'python', status: notes.length > 0 ? 'warn' : 'ok', text: here.join(', '), notes };
  notes.push('Python agents cannot run here: install python3, or name an interpreter with process.pythons.');
  return { name: 'python', status: config.defaultExecutor === 'process' ? 'fail' : 'warn', text: 'none found', notes };
}

/**
 * Returns the finding about a driver. Only the default driver is required. `chosen`: isolation that the
 * operator's settings give up, a warning rather than a failure.
 */
export function driverFinding(
  name: string,
  probe: Probe,
  config: Pick<Config, 'defaultExecutor' | 'requireIsolation'>,
  chosen: readonly string[] = [],
): Finding {
  const title = `${name} sandbox`;
  const isNeeded = config.defaultExecutor === name;
  if (!probe.available) {
    const text = isNeeded ? 'not available, and it is the default' : 'not available';
    return { name: title, status: isNeeded ? 'fail' : 'warn', text, notes: [probe.reason] };
  }
  const { isolation } = probe.capabilities;
  const text = isolation.length === 0 ? 'works, without isolation' : `works; isolation: ${isolation.join(', ')}`;
  const shared = [...readableFiles(name, isolation), ...sharedByUser(name, isolation)];
  if (probe.degraded.length === 0) {
    return { name: title, status: chosen.length === 0 ? 'ok' : 'warn', text, notes: [...chosen, ...shared] };
  }
  const status = isNeeded && config.requireIsolation ? 'fail' : 'warn';
  return { name: title, status, text, notes: [...probe.degraded, ...chosen, ...shared] };
}

/** Returns a warning if sandboxes see the host's files because the machine forbids mount namespaces. */
function readableFiles(name: string, isolation: readonly string[]): readonly string[] {
  if (runsImages(name) || isolation.includes('mount')) return [];
  return [
    'Sandboxes see the files of the machine: code that runs as the user of the service can read its data directory, with tokens, keys and records. Run only code that you trust.',
  ];
}

/** Returns notes about unexpected sharing that no driver can prevent here; not a warning. */
function sharedByUser(name: string, isolation: readonly string[]): readonly string[] {
  const counted =
    'share what the kernel gives one user of watches of files (inotify): one can take all of them from the others';
  if (runsImages(name)) {
    return [
      `Containers of one user of the host (root, where there is no rootfs.user) ${counted}. User namespaces of the daemon do not change that.`,
    ];
  }
  if (isolation.length === 0 || isolation.includes('user_limits')) return [];
  return [`Sandboxes ${counted}, and from programs of the service’s user.`];
}

function bindProblem(host: string, port: number): Promise<NodeJS.ErrnoException | null> {
  return new Promise(resolve => {
    const server = createServer();
    server.once('error', resolve);
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(null)));
  });
}

/** Resolves with true if the program at the port is a Rookery service. */
function answersHealth(host: string, port: number): Promise<boolean> {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return new Promise(resolve => {
    const request = get({ host: reachable, port, path: '/healthz', timeout: HEALTH_TIMEOUT_MS }, answer => {
      answer.resume();
      resolve(answer.statusCode === 200 && answer.headers['x-trace-id'] !== undefined);
    });
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(false));
  });
}

function gib(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}
