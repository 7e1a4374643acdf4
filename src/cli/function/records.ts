import { formatUrn, isFunctionName, LATEST, normalizeVersion, parseUrn } from '../../core/urn.ts';
import { age } from '../../lib/age.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { followLog } from '../shared/followed-log.ts';
import { type Io, pump } from '../shared/io.ts';
import { coloured, printJson, printTable } from '../shared/print.ts';
import { callMeta, metaPath } from './meta-call.ts';

/** Returns the functionVersionUrn of a name or URN. */
export async function resolveFunction(client: Client, given: string): Promise<string> {
  if (given.startsWith('sn:')) return given;
  const { name, version } = parseNamedVersion(given);
  const path = metaPath(functionUrl(name), { versionNumber: version });
  const { function: found } = await callMeta(client, 'GET', path);
  return String((found as { functionVersionUrn: unknown }).functionVersionUrn);
}

export function functionPath(urn: string, rest: string): string {
  return `/serverless/v1/functions/${encodeURIComponent(urn)}/${rest}`;
}

/** A record of `GET …/instances`. */
interface Instance {
  readonly instance_id: string;
  readonly status: string;
  readonly running_calls: number;
  readonly label: string;
  readonly cpu: number;
  readonly memory: number;
  readonly start_time: string;
}

export async function listFunctionInstances(
  io: Io,
  given: string,
  options: ClientOptions & { readonly json?: boolean; readonly quiet?: boolean },
): Promise<void> {
  const client = await Client.open(options, io);
  const urn = await resolveFunction(client, given);
  const { instances } = (await client.json('GET', functionPath(urn, 'instances'))) as unknown as {
    instances: readonly Instance[];
  };
  if (options.json === true) {
    printJson(io, instances);
  } else if (options.quiet === true) {
    for (const { instance_id: id } of instances) io.out.write(`${id}\n`);
  } else if (instances.length === 0) {
    io.err.write(`${coloured(io, io.err, 'grey', 'No instance runs: the next call starts one.')}\n`);
  } else {
    printTable(
      io,
      [
        { title: 'INSTANCE', text: row => row.instance_id },
        { title: 'STATUS', text: row => row.status, style: row => (row.status === 'ready' ? 'green' : 'yellow') },
        { title: 'CALLS', text: row => String(row.running_calls) },
        { title: 'LABEL', text: row => row.label || '-', isFlexible: true },
        { title: 'CPU', text: row => String(row.cpu) },
        { title: 'MEMORY', text: row => String(row.memory) },
        { title: 'AGE', text: row => age(row.start_time) },
      ],
      instances,
    );
  }
}

interface LogOptions extends ClientOptions {
  readonly instance?: string;
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
}

export async function printFunctionLogs(io: Io, given: string, options: LogOptions): Promise<void> {
  const client = await Client.open(options, io);
  const urn = await resolveFunction(client, given);
  const query = new URLSearchParams();
  for (const name of ['instance', 'tail', 'since'] as const) {
    const value = options[name];
    if (value !== undefined) query.set(name, value);
  }
  if (options.follow === true) {
    const command = `rookery function logs -f ${given}`;
    const isOfInstances = options.instance === undefined;
    const log = { path: functionPath(urn, 'logs'), query, command, isOfInstances };
    await pump(followLog(io, client, log), io.out, io.signal);
    return;
  }
  const answer = await client.stream('GET', functionPath(urn, `logs?${query}`));
  try {
    await pump(answer, io.out, io.signal);
  } catch (error) {
    if (io.signal.aborted) return;
    throw new CliError(`The connection broke (${(error as Error).message}).`, EXIT.unreachable);
  }
}

export interface NamedVersion {
  /** The whole name, or the URN without its version. The service checks the owner of the function. */
  readonly name: string;
  /** `$latest` when none was given. */
  readonly version: string;
}

/** The service of a function with a short name. */
const DEFAULT_SERVICE = 'default';

/** Returns the whole name: `hello` becomes `0@default@hello`, `demo@hello` becomes `0@demo@hello`. */
export function expandName(given: string): string {
  const parts = given.split(/[@/]/);
  const name =
    parts.length === 1 ? `0@${DEFAULT_SERVICE}@${given}` : parts.length === 2 ? `0@${parts.join('@')}` : given;
  if (isFunctionName(name)) return name;
  throw usageError(
    `${JSON.stringify(given)} is not the name of a function: it is hello, demo@hello, demo/hello or 0@demo@hello, the service (demo) 1 to 16 letters and digits, the rest lowercase letters, digits and "-".`,
  );
}

/** Parses a function with one of its versions: `hello`, `hello:v1`, `0@demo@hello:v1`, or a URN. */
export function parseNamedVersion(given: string): NamedVersion {
  if (given.startsWith('sn:')) return parseUrnVersion(given);
  const colon = given.indexOf(':');
  if (colon === -1) return { name: expandName(given), version: LATEST };
  const version = normalizeVersion(given.slice(colon + 1));
  if (version === '') throw usageError(`${JSON.stringify(given)} names no version behind its ":".`);
  return { name: expandName(given.slice(0, colon)), version };
}

function parseUrnVersion(given: string): NamedVersion {
  const urn = parseUrn(given);
  if (urn !== null) return { name: formatUrn({ ...urn, version: null }), version: urn.version ?? LATEST };
  throw usageError(
    `${JSON.stringify(given)} is not the URN of a function: it is sn:cn:<business>:<tenant>:function:<name>, with or without :<version>.`,
  );
}

/** Parses a function without a version and returns its `NamedVersion.name`. Accepts the latest version. */
export function parseFunction(given: string): string {
  const { name, version } = parseNamedVersion(given);
  if (version === LATEST) return name;
  throw usageError(`${JSON.stringify(given)} names a version: give the function without it.`);
}

/** Returns the path of a function in the meta_service. */
export function functionUrl(name: string): string {
  return `/functions/${encodeURIComponent(name)}`;
}
