import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { freePort } from './free-port.ts';

/** A real PgBouncer in front of PostgreSQL, which assigns any free connection to each transaction. */
export interface TestPooler extends AsyncDisposable {
  /** URL through PgBouncer of the database with which it was started. */
  readonly url: string;
}

/** Uid for PgBouncer, which refuses to run as root, like PostgreSQL. */
const NOBODY = 65_534;
const START_TIMEOUT_MS = 30_000;
const LOOK_MS = 20;

/** Starts PgBouncer. The suite must be in `describeWith(['pgbouncer'], …)`. */
export async function startPgBouncer(databaseUrl: string): Promise<TestPooler> {
  const directory = await mkdtemp(join(tmpdir(), 'rk-pooler-'));
  const { hostname, port, pathname, username, password } = new URL(databaseUrl);
  const ownPort = await freePort();
  const configFile = join(directory, 'pgbouncer.ini');
  const ofServer = `host=${hostname} port=${port} user=${username} password='${decodeURIComponent(password)}'`;
  const settings = [
    ...['[databases]', `${pathname.slice(1)} = ${ofServer}`, '[pgbouncer]'],
    ...['pool_mode = transaction', 'auth_type = any', 'listen_addr = 127.0.0.1', `listen_port = ${ownPort}`],
    // The pool is smaller than the service's, so that connections are shared.
    ...['default_pool_size = 4', 'unix_socket_dir =', ''],
  ];
  await writeFile(configFile, settings.join('\n'), { mode: 0o600 });
  const isRoot = process.getuid?.() === 0;
  if (isRoot) for (const path of [directory, configFile]) await chown(path, NOBODY, NOBODY);
  const user = isRoot ? [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'] : [];
  const logFile = join(directory, 'log');
  const log = await open(logFile, 'a');
  const pooler = spawn('setpriv', [...user, '--pdeathsig=TERM', 'pgbouncer', configFile], {
    cwd: directory,
    stdio: ['ignore', log.fd, log.fd],
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` },
  });
  await log.close();
  const close = async () => {
    await end(pooler);
    await rm(directory, { recursive: true, force: true });
  };
  const url = `postgres://anybody@127.0.0.1:${ownPort}${pathname}`;
  try {
    await answering(url, pooler, logFile);
  } catch (error) {
    await close();
    throw error;
  }
  return { url, [Symbol.asyncDispose]: close };
}

async function answering(url: string, pooler: ChildProcess, logFile: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    const isThere = await client.connect().then(
      () => true,
      () => false,
    );
    await client.end().catch(() => undefined);
    if (isThere) return;
    if (hasEnded(pooler) || performance.now() > deadline) {
      throw new Error(`PgBouncer did not start: ${await readFile(logFile, 'utf8')}`);
    }
    await new Promise(resolve => setTimeout(resolve, LOOK_MS));
  }
}

async function end(pooler: ChildProcess): Promise<void> {
  if (hasEnded(pooler)) return;
  const ended = once(pooler, 'exit');
  pooler.kill('SIGKILL');
  await ended;
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
