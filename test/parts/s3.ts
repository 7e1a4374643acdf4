import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { freePort } from './free-port.ts';
import { KEPT_DIR } from './kept.ts';

export interface S3TestServer {
  readonly endpoint: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Stores an object; creates the bucket if it is missing. */
  put(bucket: string, key: string, content: Buffer): Promise<void>;
  makeBucket(bucket: string): Promise<void>;
  /** Returns the keys of a bucket, sorted. */
  keys(bucket: string): Promise<string[]>;
  /** Stops the server; requests fail until `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
}

const PACKAGE = 'github.com/versity/versitygw/cmd/versitygw@v1.8.0';
const BUILD_TIMEOUT_MS = 300_000;

/**
 * Returns why no S3 server is available, or null. Builds one for each machine before the tests, which have a
 * time limit.
 */
export function whyNoS3(): string | null {
  if (existsSync(BINARY)) return null;
  const env = { ...process.env, GOBIN: TOOLS };
  const { status, stderr, error } = spawnSync('go', ['install', PACKAGE], {
    env,
    encoding: 'utf8',
    timeout: BUILD_TIMEOUT_MS,
  });
  if (error !== undefined) return 'Go is not installed, which builds the S3 server of the tests';
  return status === 0 ? null : `the S3 server cannot be built: ${stderr.trim().split('\n').at(-1)}`;
}

const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const BINARY = join(TOOLS, 'versitygw');

/**
 * Starts a real S3 server on a temporary directory and a free loopback port. The suite must be in
 * `describeWith(['s3'], …)`.
 */
export async function startS3Server(): Promise<S3TestServer> {
  const root = await mkdtemp(join(tmpdir(), 'rookery-s3-'));
  const port = await freePort();
  const credentials = { accessKeyId: 'test-access', secretAccessKey: 'test-secret' };
  let server: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();
  const start = async () => {
    server = spawn(BINARY, ['--port', `127.0.0.1:${port}`, 'posix', '--nometa', root], {
      env: { ...process.env, ROOT_ACCESS_KEY: credentials.accessKeyId, ROOT_SECRET_KEY: credentials.secretAccessKey },
      stdio: 'ignore',
    });
    exited = once(server, 'exit');
    await listening(port, server);
  };
  const stop = async () => {
    server?.kill();
    await exited;
  };
  await start();
  return {
    endpoint: `http://127.0.0.1:${port}`,
    ...credentials,
    start,
    stop,
    put: async (bucket, key, content) => {
      const path = join(root, bucket, key);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, content);
    },
    makeBucket: async bucket => {
      await mkdir(join(root, bucket), { recursive: true });
    },
    keys: async bucket => {
      const found = await readdir(join(root, bucket), { recursive: true, withFileTypes: true });
      return found
        .filter(entry => entry.isFile())
        .map(entry => relative(join(root, bucket), join(entry.parentPath, entry.name)))
        .sort();
    },
    close: async () => {
      await stop();
      await rm(root, { recursive: true, force: true });
    },
  };
}

async function listening(port: number, server: { exitCode: number | null }): Promise<void> {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const socket = net.connect({ host: '127.0.0.1', port });
    const open = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (open) return;
    if (server.exitCode !== null || Date.now() > deadline) throw new Error('the S3 server did not start');
    await new Promise(resolve => setTimeout(resolve, 25));
  }
}
