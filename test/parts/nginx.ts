import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { authority } from './certificates.ts';
import { freePort } from './free-port.ts';

/** A real nginx with the file of `deploy/proxy` in front of a service. */
export interface TestNginx extends AsyncDisposable {
  /** Port with TLS. */
  readonly port: number;
  readonly plainPort: number;
  /** Certificate of the authority that signed nginx's certificate, in PEM; `caFile` is the file with it. */
  readonly ca: string;
  readonly caFile: string;
}

const START_TIMEOUT_MS = 30_000;
const LOOK_MS = 20;
const CONFIG = new URL('../../deploy/proxy/nginx.conf', import.meta.url);

/** Starts nginx. The suite must be in `describeWith(['nginx'], …)`. */
export async function startNginx(frontendUrl: string, metaUrl: string): Promise<TestNginx> {
  const directory = await mkdtemp(join(tmpdir(), 'rk-nginx-'));
  const signer = authority('the authority of a test');
  const { cert, key } = signer.issue('localhost');
  const [port, plainPort] = [await freePort(), await freePort()];
  const caFile = join(directory, 'ca.pem');
  await writeFile(caFile, signer.cert);
  await writeFile(join(directory, 'cert.pem'), cert);
  await writeFile(join(directory, 'key.pem'), key, { mode: 0o600 });
  await mkdir(join(directory, 'logs'));
  const replaced: readonly (readonly [string, string])[] = [
    ['127.0.0.1:8888', new URL(frontendUrl).host],
    ['127.0.0.1:31182', new URL(metaUrl).host],
    ['listen 80;', `listen 127.0.0.1:${plainPort};`],
    ['listen 443 ', `listen 127.0.0.1:${port} `],
    ['/etc/nginx/tls/rookery.pem', join(directory, 'cert.pem')],
    ['/etc/nginx/tls/rookery.key', join(directory, 'key.pem')],
  ];
  const shipped = await readFile(CONFIG, 'utf8');
  let site = shipped;
  for (const [from, to] of replaced) {
    if (!shipped.includes(from)) throw new Error(`deploy/proxy/nginx.conf does not have ${from}`);
    site = site.replaceAll(from, to);
  }
  await writeFile(join(directory, 'site.conf'), site);
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  const settings = [
    ...['daemon off;', 'master_process off;', 'pid nginx.pid;', 'error_log logs/error.log warn;'],
    ...['events {}', 'http {', 'access_log off;', ...paths.map(name => `${name}_temp_path ${name};`)],
    ...['include site.conf;', '}', ''],
  ];
  await writeFile(join(directory, 'nginx.conf'), settings.join('\n'));
  const logFile = join(directory, 'log');
  const log = await open(logFile, 'a');
  const args = ['--pdeathsig=KILL', 'nginx', '-p', `${directory}/`, '-c', 'nginx.conf'];
  const nginx = spawn('setpriv', args, {
    stdio: ['ignore', log.fd, log.fd],
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` },
  });
  await log.close();
  const close = async () => {
    await end(nginx);
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await listening(port, nginx, logFile);
  } catch (error) {
    await close();
    throw error;
  }
  return { port, plainPort, ca: signer.cert, caFile, [Symbol.asyncDispose]: close };
}

async function listening(port: number, nginx: ChildProcess, logFile: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const socket = net.connect(port, '127.0.0.1');
    const isThere = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isThere) return;
    if (hasEnded(nginx) || performance.now() > deadline) {
      throw new Error(`nginx did not start: ${await readFile(logFile, 'utf8')}`);
    }
    await new Promise(resolve => setTimeout(resolve, LOOK_MS));
  }
}

async function end(nginx: ChildProcess): Promise<void> {
  if (hasEnded(nginx)) return;
  const ended = once(nginx, 'exit');
  nginx.kill('SIGKILL');
  await ended;
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
