import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** A registry's name in the client's configuration, as Docker Hub is called there. */
const HUB = 'https://index.docker.io/v1/';

/** What `createImage` takes as credentials. */
export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
  readonly serveraddress: string;
}

/** What `docker login` kept for the registry of an image, null when nothing. Credential helpers are not asked. */
export async function findRegistryAuth(image: string): Promise<RegistryAuth | null> {
  const path = join(process.env.DOCKER_CONFIG || join(homedir(), '.docker'), 'config.json');
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
  const isHost = image.includes('/') && (/[.:]/.test(first) || first === 'localhost');
  return isHost ? first : HUB;
}
