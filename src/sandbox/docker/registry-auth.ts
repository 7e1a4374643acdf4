import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';

/** A registry's name in the client's configuration, as Docker Hub is called there. */
const HUB = 'https://index.docker.io/v1/';

/** Registries that everybody may trust with the address of their own token servers. */
const PUBLIC_REGISTRIES = [
  ...['docker.io', 'ghcr.io', 'quay.io', 'gcr.io', 'registry.k8s.io', 'public.ecr.aws', 'mcr.microsoft.com'],
  'nvcr.io',
];

/** From which registries images may be pulled. */
export interface RegistryRules {
  /** Trusted beside those with a login; null: the large public ones. */
  readonly named: readonly string[] | null;
  /** Whether nothing else is asked. */
  readonly onlyNamed: boolean;
}

/** The credentials for `createImage`, and whether the registry is trusted. */
export interface PullAuth {
  readonly authconfig?: RegistryAuth | RegistryToken;
  readonly registry: string;
  readonly isTrusted: boolean;
}

interface RegistryToken {
  readonly registrytoken: string;
  readonly serveraddress: string;
}

/** What `createImage` takes as credentials. */
export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
  readonly serveraddress: string;
}

/**
 * How the daemon may ask for an image, null when it may not ask its registry at all. The daemon follows a registry to whatever token server it names, with
 * the network of the host. So one that nobody has named gets a token that means nothing: the daemon then asks for none.
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

/** As a setting names it: Docker Hub is `docker.io`. */
export function registryName(image: string): string {
  const registry = registryOf(image);
  return registry === HUB || registry === 'index.docker.io' ? 'docker.io' : registry;
}

/** What `docker login` kept for the registry of an image, null when nothing. Credential helpers are not asked. */
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
  // As the daemon reads it: a name of a user on Docker Hub has neither a dot, nor a colon, nor a capital letter.
  const isHost = image.includes('/') && (/[.:A-Z]/.test(first) || first === 'localhost');
  return isHost && first !== 'docker.io' ? first : HUB;
}
