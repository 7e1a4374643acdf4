import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { failedPrecondition } from '../../core/error.ts';

/** Address of a Docker daemon in the form of its client library. */
export interface DockerEndpoint {
  /** The address as a user writes it: `unix:///var/run/docker.sock`. */
  readonly host: string;
  readonly connection:
    | { readonly socketPath: string }
    | {
        readonly protocol: 'http' | 'https';
        readonly host: string;
        readonly port: number;
        readonly ca?: Buffer;
        readonly cert?: Buffer;
        readonly key?: Buffer;
      };
}

/** Returns the path of the daemon's socket, or null when the daemon is reached over TCP. */
export function socketPathOf({ connection }: DockerEndpoint): string | null {
  return 'socketPath' in connection ? connection.socketPath : null;
}

/** Environment variables that select the daemon, as for Docker's own clients. */
export interface DockerEnvironment {
  readonly DOCKER_HOST?: string | undefined;
  readonly DOCKER_CONTEXT?: string | undefined;
  readonly DOCKER_CONFIG?: string | undefined;
  readonly DOCKER_TLS_VERIFY?: string | undefined;
  readonly DOCKER_CERT_PATH?: string | undefined;
}

const DEFAULT_SOCKET = '/var/run/docker.sock';
const LOOPBACK = new Set(['localhost', '127.0.0.1', '::1']);

/**
 * Returns the address of the daemon. The setting has priority over the choice of Docker's own command line:
 * - `DOCKER_HOST`
 * - the context of `DOCKER_CONTEXT` or of the client's configuration
 * - the usual sockets
 *
 * Containers and server share directories, so the daemon must be on this machine. Fails with
 * `failed_precondition`.
 */
export async function findEndpoint(
  setting: string | null,
  env: DockerEnvironment,
  home: string = homedir(),
): Promise<DockerEndpoint> {
  const configDir = env.DOCKER_CONFIG || join(home, '.docker');
  const explicit = setting ?? (env.DOCKER_HOST || null);
  if (explicit !== null) {
    const certificates = env.DOCKER_CERT_PATH || configDir;
    return await parseHost(explicit, env.DOCKER_TLS_VERIFY ? certificates : null);
  }
  const context = env.DOCKER_CONTEXT || (await currentContext(configDir));
  if (context !== null && context !== 'default') return await contextEndpoint(configDir, context);
  const desktop = join(home, '.docker', 'run', 'docker.sock');
  return await parseHost(
    `unix://${!existsSync(DEFAULT_SOCKET) && existsSync(desktop) ? desktop : DEFAULT_SOCKET}`,
    null,
  );
}

async function currentContext(configDir: string): Promise<string | null> {
  const config = await readJson(join(configDir, 'config.json'));
  return typeof config?.currentContext === 'string' && config.currentContext !== '' ? config.currentContext : null;
}

async function contextEndpoint(configDir: string, context: string): Promise<DockerEndpoint> {
  const id = createHash('sha256').update(context).digest('hex');
  const path = join(configDir, 'contexts', 'meta', id, 'meta.json');
  const meta = await readJson(path);
  const endpoint = (meta?.Endpoints as { docker?: { Host?: unknown } } | undefined)?.docker;
  if (typeof endpoint?.Host !== 'string') {
    throw failedPrecondition(`the Docker context ${context} names no host: expected Endpoints.docker.Host in ${path}`);
  }
  const certificates = join(configDir, 'contexts', 'tls', id, 'docker');
  return await parseHost(endpoint.Host, existsSync(certificates) ? certificates : null);
}

/**
 * Parses a host. `certificates` is the directory of ca.pem, cert.pem and key.pem when TLS is wanted; null
 * otherwise.
 */
async function parseHost(text: string, certificates: string | null): Promise<DockerEndpoint> {
  if (text.startsWith('unix://')) {
    return { host: text, connection: { socketPath: text.slice('unix://'.length) || DEFAULT_SOCKET } };
  }
  if (text.startsWith('/')) return { host: `unix://${text}`, connection: { socketPath: text } };
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !['tcp:', 'http:', 'https:'].includes(url.protocol)) {
    throw failedPrecondition(`the Docker host must be unix:///path or tcp://127.0.0.1:port, got "${text}"`);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (!LOOPBACK.has(host)) {
    throw failedPrecondition(
      `the Docker daemon must be on this machine, since containers and server share directories; got "${text}"`,
    );
  }
  const hasTls = certificates !== null || url.protocol === 'https:';
  const port = url.port === '' ? (hasTls ? 2376 : 2375) : Number(url.port);
  if (certificates === null) return { host: text, connection: { protocol: hasTls ? 'https' : 'http', host, port } };
  const [ca, cert, key] = await Promise.all(
    ['ca.pem', 'cert.pem', 'key.pem'].map(name => readFile(join(certificates, name)).catch(() => undefined)),
  );
  return {
    host: text,
    connection: {
      protocol: 'https',
      host,
      port,
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    },
  };
}

async function readJson(path: string): Promise<Record<string, unknown> | null> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
  } catch {
    return null;
  }
}

const SOCKET = '/var/run/docker.sock';
const DAEMON_SETTINGS = '/etc/docker/daemon.json';

/** Returns the daemon's socket, and its data directory if daemon.json sets one. */
export async function daemonPaths(): Promise<readonly string[]> {
  try {
    const place = (JSON.parse(await readFile(DAEMON_SETTINGS, 'utf8')) as Record<string, unknown>)['data-root'];
    return typeof place === 'string' && place.startsWith('/') ? [SOCKET, place] : [SOCKET];
  } catch {
    return [SOCKET];
  }
}
