import { readFile } from 'node:fs/promises';
import { failedPrecondition, messageOf } from '../../core/error.ts';

/** The address of a supervisord. */
export interface SupervisordAddress {
  /** The address without credentials, for messages. */
  readonly shown: string;
  readonly connection: { readonly socketPath: string } | { readonly host: string; readonly port: number };
  /** Credentials as `user:password`; null when none are configured. */
  readonly credentials: string | null;
}

const DEFAULT_PORT = 9001;
const SHAPES = 'unix:///path/of/the/socket, http://host:port or http://user:password@host:port';

/**
 * Reads `supervisor.url` and, if set, `supervisor.credentialsFile` (one line, `user:password`).
 * Fails with `failed_precondition`.
 */
export async function readAddress(url: string, credentialsFile: string | null): Promise<SupervisordAddress> {
  const address = parseAddress(url);
  if (credentialsFile === null) return address;
  if (address.credentials !== null) {
    throw failedPrecondition(
      'supervisor.url names credentials and supervisor.credentialsFile too: expected one of them',
    );
  }
  return { ...address, credentials: await readCredentials(credentialsFile) };
}

function parseAddress(url: string): SupervisordAddress {
  if (url.startsWith('unix://')) {
    const socketPath = url.slice('unix://'.length);
    if (!socketPath.startsWith('/')) throw badUrl(url);
    return { shown: url, connection: { socketPath }, credentials: null };
  }
  const parsed = URL.canParse(url) ? new URL(url) : null;
  // The message leaves out the text, which may contain a password.
  if (parsed === null) throw badUrl('what is no URL');
  if (parsed.protocol !== 'http:' || parsed.hostname === '') throw badUrl(`${parsed.protocol}//${parsed.host}`);
  const port = parsed.port === '' ? DEFAULT_PORT : Number(parsed.port);
  return {
    shown: `http://${parsed.hostname}:${port}`,
    connection: { host: parsed.hostname.replace(/^\[|\]$/g, ''), port },
    credentials: parsed.username === '' ? null : `${decode(parsed.username)}:${decode(parsed.password)}`,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw badUrl('a user or password with a "%" that begins no escape: write it as %25');
  }
}

async function readCredentials(path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw failedPrecondition(`supervisor.credentialsFile cannot be read: ${messageOf(error)}`, { cause: error });
  }
  const line = text.replace(/\r?\n$/, '');
  if (!/^[^:\n]+:[^\n]*$/.test(line)) {
    throw failedPrecondition(`supervisor.credentialsFile ${path}: expected one line, user:password`);
  }
  return line;
}

function badUrl(found: string) {
  return failedPrecondition(`supervisor.url: expected ${SHAPES}, got ${found}`);
}
