import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';

/** Name of Docker Hub in the client's configuration. */
const HUB = 'https://index.docker.io/v1/';

/** Large public registries, which are trusted to name their own token servers. */
const PUBLIC_REGISTRIES = [
  ...['docker.io', 'ghcr.io', 'quay.io', 'gcr.io', 'registry.k8s.io', 'public.ecr.aws', 'mcr.microsoft.com'],
  'nvcr.io',
];

/** Registries from which images may be pulled. */
export interface RegistryRules {
  /** Registries trusted in addition to those with a login; null: the large public ones. */
  readonly named: readonly string[] | null;
  /** True if untrusted registries are refused. */
  readonly onlyNamed: boolean;
}

/** Credentials for `createImage`, and whether the registry is trusted. */
export interface PullAuth {
  readonly authconfig?: RegistryAuth | RegistryToken;
  readonly registry: string;
  readonly isTrusted: boolean;
}

interface RegistryToken {
  readonly registrytoken: string;
  readonly serveraddress: string;
}

/** User name and password for `createImage`. */
export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
  readonly serveraddress: string;
}

/**
 * Returns how the daemon may pull an image, or null when its registry is refused. The daemon contacts any
 * token server that a registry names, over the host's network. An untrusted registry therefore gets a dummy
 * token, so that the daemon contacts no token server.
 */
export async function authorizePull(
  image: string,
  { named, onlyNamed }: RegistryRules,
  environment: Environment,
): Promise<PullAuth | null> {
  const registry = registryName(image);
  const login = await findRegistryAuth(image, environment);
  if (login !== null) return { authconfig: login, registry, isTrusted: true };
  if ((named ?? PUBLIC_REGISTRIES).includes(registry)) return { registry, isTrusted: true };
  if (onlyNamed) return null;
  return { authconfig: { registrytoken: 'none', serveraddress: registry }, registry, isTrusted: false };
}

/** Returns the registry of an image as the settings name it; Docker Hub is `docker.io`. */
export function registryName(image: string): string {
  const registry = registryOf(image);
  return registry === HUB || registry === 'index.docker.io' ? 'docker.io' : registry;
}

/**
 * Returns the login that `docker login` stored for the registry of an image, or null. Credential helpers are
 * not used.
 */
export async function findRegistryAuth(image: string, environment: Environment): Promise<RegistryAuth | null> {
  const path = join(environment.DOCKER_CONFIG || join(homedir(), '.docker'), 'config.json');
  let auths: Record<string, { auth?: unknown }>;
  try {
    auths = (JSON.parse(await readFile(path, 'utf8')) as { auths?: typeof auths }).auths ?? {};
  } catch {
    return null;
  }
  const registry = registryOf(image);
  const entry = Object.entries(auths).find(
    ([name]) => name === registry || name.replace(/^https?:\/\//, '').replace(/\/.*$/, '') === registry,
  );
  if (entry === undefined || typeof entry[1].auth !== 'string') return null;
  const text = Buffer.from(entry[1].auth, 'base64').toString();
  const colon = text.indexOf(':');
  if (colon < 1) return null;
  return { username: text.slice(0, colon), password: text.slice(colon + 1), serveraddress: entry[0] };
}

function registryOf(image: string): string {
  const [first = ''] = image.split('/', 1);
  // Same rule as in the daemon: user names on Docker Hub have no dot, colon or capital letter.
  const isHost = image.includes('/') && (/[.:A-Z]/.test(first) || first === 'localhost');
  return isHost && first !== 'docker.io' ? first : HUB;
}
