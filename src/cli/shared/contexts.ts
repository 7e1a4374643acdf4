import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { fileProblem } from '../../../clients/typescript/src/file-problem.ts';
import type { Environment } from '../../core/environment.ts';
import { isJsonObject } from '../../core/json.ts';
import { CliError, EXIT, usageError } from './exit.ts';

/** A server that the user has logged in to. */
export interface Server {
  readonly address: string;
  readonly metaAddress: string;
  readonly token?: string;
  readonly tenant?: string;
  /** Certificate file of the server's authority, if Node does not trust it already. */
  readonly caFile?: string;
}

export interface Contexts {
  /** The default context; null: none. */
  readonly current: string | null;
  readonly servers: Readonly<Record<string, Server>>;
}

const NONE: Contexts = { current: null, servers: {} };
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;

/** Returns the file of this user's contexts, or null if the environment names no place. */
function contextsFile({ XDG_CONFIG_HOME: config, HOME: home }: Environment): string | null {
  // The XDG specification: a path that is not absolute is ignored.
  const directory = config !== undefined && isAbsolute(config) ? config : home ? join(home, '.config') : null;
  return directory === null ? null : join(directory, 'rookery', 'contexts.json');
}

/**
 * Reads the contexts; returns none without a file. Fails when the file is invalid, because its contents must
 * not be guessed.
 */
export async function readContexts(environment: Environment): Promise<Contexts> {
  const file = contextsFile(environment);
  if (file === null) return NONE;
  try {
    return checked(JSON.parse(await readFile(file, 'utf8')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return NONE;
    const why = `The contexts in ${file} cannot be read: ${fileProblem(error)}. Repair or remove the file, and log in again.`;
    throw new CliError(why, EXIT.config);
  }
}

/** Writes the contexts atomically, readable for this user only. */
export async function writeContexts(environment: Environment, contexts: Contexts): Promise<void> {
  const file = contextsFile(environment);
  if (file === null) throw usageError('Contexts have no place: set HOME, or XDG_CONFIG_HOME to an absolute path.');
  const next = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    await writeFile(next, `${JSON.stringify(contexts, null, 2)}\n`, { flag: 'wx', mode: 0o600 });
    // The umask may have changed the mode.
    await chmod(next, 0o600);
    await rename(next, file);
  } catch (error) {
    await rm(next, { force: true });
    throw new CliError(`The contexts cannot be written to ${file}: ${fileProblem(error)}.`);
  }
}

/** Returns the named context, otherwise the current one, or null. Fails for an unknown name. */
export async function contextInForce(
  given: string | undefined,
  environment: Environment,
): Promise<{ readonly name: string; readonly server: Server } | null> {
  const named = given ?? (environment.ROOKERY_CONTEXT || undefined);
  const contexts = await readContexts(environment);
  const name = named ?? contexts.current;
  return name === null ? null : { name, server: serverOf(contexts, name) };
}

export function serverOf({ servers }: Contexts, name: string): Server {
  if (Object.hasOwn(servers, name)) return servers[name] as Server;
  const names = Object.keys(servers);
  const known =
    names.length === 0 ? 'There is none yet: "rookery login URL" makes one' : `There is ${names.join(', ')}`;
  throw usageError(`There is no context ${JSON.stringify(name)}. ${known}.`);
}

export function checkContextName(name: string): string {
  if (NAME.test(name)) return name;
  throw usageError(
    `The name of a context has letters, digits, ".", "_" and "-", not ${JSON.stringify(name)}: give one with --name.`,
  );
}

function checked(value: unknown): Contexts {
  if (!isJsonObject(value) || !isJsonObject(value.servers)) throw new Error('it has no servers');
  for (const [name, server] of Object.entries(value.servers)) {
    const isServer =
      isJsonObject(server) &&
      typeof server.address === 'string' &&
      typeof server.metaAddress === 'string' &&
      [server.token, server.tenant, server.caFile].every(each => each === undefined || typeof each === 'string');
    if (!isServer) throw new Error(`${JSON.stringify(name)} is not a server with address and metaAddress`);
  }
  const { current } = value;
  return {
    current: typeof current === 'string' && Object.hasOwn(value.servers, current) ? current : null,
    servers: value.servers as unknown as Contexts['servers'],
  };
}
