import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { readPool } from '../../core/pool.ts';
import { parsePairs } from '../deploy/file.ts';
import { askMeta, callMeta, forEach, type MetaAnswer, metaFailure, metaPath } from '../function/meta-call.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { readJsonArgument, readRequestFile, refuseProblems } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';

interface CreateOptions extends ClientOptions {
  readonly file?: string;
  readonly size?: string;
  readonly maxSize?: string;
  readonly group?: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly image?: string;
  readonly label?: readonly string[];
  readonly env?: readonly string[];
  readonly json?: boolean;
}

const FIELD_FLAGS = ['size', 'maxSize', 'group', 'cpu', 'memory', 'image', 'label', 'env'] as const;

/** Fields that are JSON texts on the wire. A file may write them as plain values. */
const JSON_TEXTS = [
  'volumes',
  'volume_mounts',
  'affinities',
  'tolerations',
  'horizontal_pod_autoscaler_spec',
  'topology_spread_constraints',
];

/** Creates pools from flags or a file: `rookery pool create`. */
export async function createPools(io: Io, id: string | undefined, options: CreateOptions): Promise<void> {
  if (options.file !== undefined && (id !== undefined || FIELD_FLAGS.some(flag => options[flag] !== undefined))) {
    throw usageError('Describe pools by the file or by an id and flags, not by both.');
  }
  const pools = (options.file === undefined ? [poolFromFlags(id, options)] : await poolsFromFile(io, options.file)).map(
    writeJsonTexts,
  );
  const problems = pools.flatMap((pool, index) => {
    const read = isJsonObject(pool) ? readPool(pool) : { ok: false as const, problems: ['must be a map'] };
    const name = isJsonObject(pool) && typeof pool.id === 'string' ? pool.id : `number ${index + 1}`;
    return read.ok ? [] : read.problems.map(problem => (pools.length === 1 ? problem : `pool ${name}: ${problem}`));
  });
  if (problems.length > 0) refuseProblems(options.file ?? 'The pool', problems);
  const client = await Client.open(options, io);
  const answer = await askMeta(client, 'POST', '/podpools', { pools });
  const created = createdIds(pools, answer);
  if (options.json === true) printJson(io, { created });
  else for (const each of created) io.out.write(`${each}\n`);
  if (answer.code !== 0) throw metaFailure(answer);
}

/**
 * Returns the ids that the service created. Pools succeed or fail separately; if an id was sent twice, the
 * first one was created.
 */
function createdIds(pools: readonly unknown[], { code, result }: MetaAnswer): string[] {
  const ids = pools.map(pool => String((pool as JsonObject).id));
  const failed = isJsonObject(result) && Array.isArray(result.failed_pools) ? [...result.failed_pools] : [];
  if (code !== 0 && failed.length === 0) return [];
  const created = ids.reverse().filter(id => {
    const at = failed.indexOf(id);
    if (at !== -1) failed.splice(at, 1);
    return at === -1;
  });
  return created.reverse();
}

interface PoolRecord {
  readonly id: string;
  readonly group: string;
  readonly size: number;
  readonly max_size: number;
  readonly ready_count: number;
  readonly status: number;
  readonly msg: string;
}

const PAGE = 1000;
/** More pages than any cluster has, as a bound for the loop. */
const MAX_PAGES = 1000;

/** Prints the pools of the service: `rookery pool list`. */
export async function listPools(
  io: Io,
  options: ClientOptions & {
    readonly id?: string;
    readonly group?: string;
    readonly json?: boolean;
    readonly quiet?: boolean;
  },
): Promise<void> {
  const client = await Client.open(options, io);
  const pools: PoolRecord[] = [];
  for (let page = 1; page <= MAX_PAGES; page++) {
    const query = { id: options.id, group: options.group, offset: String(page), limit: String(PAGE) };
    const { result } = await callMeta(client, 'GET', metaPath('/podpools', query));
    const found = (result as { pools: readonly PoolRecord[] }).pools;
    pools.push(...found);
    if (found.length < PAGE) break;
  }
  if (options.json === true) printJson(io, pools);
  else if (options.quiet === true) for (const pool of pools) io.out.write(`${pool.id}\n`);
  else printTable(io, COLUMNS, pools);
}

/** Changes the size or the autoscaler of a pool: `rookery pool update`. */
export async function updatePool(
  io: Io,
  id: string,
  options: ClientOptions & {
    readonly size?: string;
    readonly maxSize?: string;
    readonly hpa?: string;
    readonly json?: boolean;
  },
): Promise<void> {
  const body = without({
    size: wholeOf(options.size, '--size'),
    max_size: wholeOf(options.maxSize, '--max-size'),
    horizontal_pod_autoscaler_spec: options.hpa ? await readJsonArgument(io, options.hpa) : options.hpa,
  });
  if (Object.keys(body).length === 0) throw usageError('Say what is to change: --size, --max-size or --hpa.');
  const client = await Client.open(options, io);
  await naming(id, () => callMeta(client, 'PUT', `/podpools/${encodeURIComponent(id)}`, body));
  if (options.json === true) printJson(io, { updated: id });
  else io.out.write(`${id}\n`);
}

/** Deletes pools: `rookery pool delete`. */
export async function deletePools(
  io: Io,
  ids: readonly string[],
  options: ClientOptions & { readonly group?: string; readonly json?: boolean },
): Promise<void> {
  const { group } = options;
  if (ids.length === 0 && group === undefined) throw usageError('Say which pools: their ids, or --group.');
  const client = await Client.open(options, io);
  if (ids.length === 0) {
    await callMeta(client, 'DELETE', metaPath('/podpools', { group }));
    if (options.json === true) printJson(io, { deleted: { group } });
    return;
  }
  const deleted: string[] = [];
  await forEach(ids, async id => {
    await naming(id, () => callMeta(client, 'DELETE', metaPath('/podpools', { id, group })));
    deleted.push(id);
    if (options.json !== true) io.out.write(`${id}\n`);
  }).finally(() => {
    if (options.json === true) printJson(io, { deleted });
  });
}

/** Adds the pool's id to a refusal: the service's texts do not name it. */
async function naming<T>(id: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CliError) || error.exitCode !== EXIT.failure) throw error;
    throw new CliError(`pool ${id}: ${error.message}`, error.exitCode, error.status, error.traceId);
  }
}

const STATUS = ['new', 'creating', 'update requested', 'updating', 'running', 'failed', 'deleting'];
const COLUMNS = [
  { title: 'ID', text: (pool: PoolRecord) => pool.id },
  { title: 'GROUP', text: (pool: PoolRecord) => pool.group },
  { title: 'READY', text: (pool: PoolRecord) => `${pool.ready_count}/${pool.size}` },
  { title: 'MAX', text: (pool: PoolRecord) => String(pool.max_size) },
  { title: 'STATUS', text: (pool: PoolRecord) => STATUS[pool.status] ?? String(pool.status) },
  { title: 'MESSAGE', text: (pool: PoolRecord) => pool.msg || '-', isFlexible: true },
];

async function poolsFromFile(io: Io, file: string): Promise<readonly unknown[]> {
  const value = await readRequestFile(io, file);
  if (Array.isArray(value)) return value;
  if (isJsonObject(value)) return Array.isArray(value.pools) ? value.pools : [value];
  throw usageError(`${file} must hold a pool, a list of pools, or {pools: […]}.`);
}

function poolFromFlags(id: string | undefined, flags: CreateOptions): JsonObject {
  if (id === undefined)
    throw usageError('The pool needs an id: rookery pool create <id> --size 2 --cpu 500m --memory 512Mi.');
  const amounts = without({ cpu: flags.cpu, memory: flags.memory });
  return without({
    id,
    group: flags.group,
    size: wholeOf(flags.size, '--size'),
    max_size: wholeOf(flags.maxSize, '--max-size'),
    image: flags.image,
    labels: flags.label === undefined ? undefined : parsePairs(flags.label, '--label'),
    environment: flags.env === undefined ? undefined : parsePairs(flags.env, '--env'),
    resources: { requests: amounts, limits: amounts },
  });
}

function writeJsonTexts(pool: unknown): unknown {
  if (!isJsonObject(pool)) return pool;
  const texts = JSON_TEXTS.filter(field => typeof pool[field] === 'object' && pool[field] !== null);
  return { ...pool, ...Object.fromEntries(texts.map(field => [field, JSON.stringify(pool[field])])) };
}

function wholeOf(text: string | undefined, flag: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${JSON.stringify(text)}.`);
  return Number(text);
}

function without(fields: Readonly<Record<string, unknown>>): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
