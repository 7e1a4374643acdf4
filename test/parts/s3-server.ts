import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { KEPT_DIR } from './kept.ts';

export interface S3TestServer {
  readonly endpoint: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Makes an object; the bucket comes with it. */
  put(bucket: string, key: string, content: Buffer): Promise<void>;
  close(): Promise<void>;
}

const PACKAGE = 'github.com/versity/versitygw/cmd/versitygw@latest';

/** Builds the gateway once for each machine; a Go module cache makes later builds short. */
function gatewayBinary(): string {
  const directory = join(KEPT_DIR, 'rookery-test-tools');
  const binary = join(directory, 'versitygw');
  if (!existsSync(binary)) {
    execFileSync('go', ['install', PACKAGE], {
      env: { ...process.env, GOBIN: directory },
      stdio: 'pipe',
      timeout: 300_000,
    });
  }
  return binary;
}

/** A real S3 server that serves a temporary directory on a free port of the loopback. Needs Go. */
export async function startS3Server(): Promise<S3TestServer> {
  const root = await mkdtemp(join(tmpdir(), 'rookery-s3-'));
  const port = await freePort();
  const credentials = { accessKeyId: 'test-access', secretAccessKey: 'test-secret' };
  const server = spawn(gatewayBinary(), ['--port', `127.0.0.1:${port}`, 'posix', '--nometa', root], {
    env: { ...process.env, ROOT_ACCESS_KEY: credentials.accessKeyId, ROOT_SECRET_KEY: credentials.secretAccessKey },
    stdio: 'ignore',
  });
  const exited = once(server, 'exit');
  await listening(port, server);
  return {
    endpoint: `http://127.0.0.1:${port}`,
    ...credentials,
    put: async (bucket, key, content) => {
      const path = join(root, bucket, key);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, content);
    },
    close: async () => {
      server.kill();
      await exited;
      await rm(root, { recursive: true, force: true });
    },
  };
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
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
