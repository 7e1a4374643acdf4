import type { Variables } from '../../core/secret.ts';
import { normalizeVersion } from '../../core/urn.ts';
import { age } from '../../lib/age.ts';
import { shownVariable } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printFields, printJson, printTable } from '../shared/print.ts';
import { printList, type WatchOptions } from '../wait/watched-list.ts';
import { callMeta, metaPath } from './meta-call.ts';
import { functionUrl, parseFunction, parseNamedVersion } from './records.ts';

/** A record of the meta_service. A service of another version may omit fields. */
interface FunctionRecord {
  readonly functionVersionUrn: string;
  readonly name: string;
  readonly versionNumber: string;
  readonly revisionId: string;
  readonly createTime: string;
  readonly updateTime?: string;
  readonly versionDesc?: string;
  readonly kind?: string;
  readonly runtime: string;
  readonly handler?: string;
  readonly description?: string;
  readonly cpu?: number;
  readonly memory?: number;
  readonly timeout?: number;
  readonly storageType?: string;
  readonly codePath?: string;
  readonly bucketId?: string;
  readonly objectId?: string;
  readonly sandboxType?: string;
  readonly status?: string;
  readonly minInstance?: number;
  readonly maxInstance?: number;
  readonly concurrentNum?: number;
  readonly environment?: Variables;
}

interface ReadOptions extends ClientOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

const PAGE = 1000;

export async function getFunction(io: Io, given: string, options: ReadOptions): Promise<void> {
  const { name, version } = parseNamedVersion(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: version }));
  const fn = answer.function as FunctionRecord;
  if (options.json === true) {
    printJson(io, fn);
    return;
  }
  const isService = fn.kind === 'faas';
  printFields(io, [
    ['name', fn.name],
    ['version', fn.versionNumber],
    ['urn', fn.functionVersionUrn],
    ['kind', fn.kind],
    ['description', fn.description],
    ['version note', fn.versionDesc],
    ['revision', fn.revisionId],
    ['created', fn.createTime],
    ['updated', fn.updateTime],
    ['status', fn.status],
    ['runtime', fn.runtime],
    ['handler', fn.handler],
    ['code', codeOf(fn)],
    ['sandbox', fn.sandboxType],
    ['cpu', `${fn.cpu} millicores`],
    ['memory', `${fn.memory} MB`],
    ['timeout', `${fn.timeout} s`],
    ['instances', isService ? `${fn.minInstance} to ${fn.maxInstance}, ${fn.concurrentNum} calls each` : undefined],
    [
      'environment',
      Object.entries(fn.environment ?? {})
        .map(([key, value]) => `${key}=${shownVariable(value)}`)
        .join(' '),
    ],
  ]);
}

export async function listVersions(io: Io, given: string, options: ReadOptions): Promise<void> {
  const name = parseFunction(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'GET', `${functionUrl(name)}/versions`);
  const versions = answer.functions as readonly FunctionRecord[] | null;
  show(io, options, versions ?? []);
  if (versions === null && options.json !== true) io.err.write(`There is no function ${name}.\n`);
}

interface ListOptions extends ReadOptions, WatchOptions {
  readonly name?: string;
  readonly at?: string;
  readonly limit: string;
}

export async function listFunctions(io: Io, options: ListOptions): Promise<void> {
  if (!/^[1-9]\d{0,8}$/.test(options.limit)) {
    throw usageError(`--limit must be a whole number from 1, not ${JSON.stringify(options.limit)}.`);
  }
  // The events below report instances. No event reports a register, so polling finds new functions.
  await printList(io, options, ['created', 'scaled', 'ended'], async (out, client) => {
    const { functions, total } = await allFunctions(client, options, Number(options.limit));
    show(out, options, functions);
    if (options.json === true || options.quiet === true) return functions;
    if (total > functions.length) io.err.write(`There are ${total}: only ${options.limit} are shown (--limit).\n`);
    if (total === 0) io.err.write('There is none. "rookery function register --help" shows how to make one.\n');
    return functions;
  });
}

/** Returns at most `limit` functions that match the filter, and the number of all matches. */
export async function allFunctions(
  client: Client,
  filter: { readonly name?: string; readonly at?: string },
  limit: number,
): Promise<{ readonly functions: readonly FunctionRecord[]; readonly total: number }> {
  const pageSize = Math.min(PAGE, limit);
  const found: FunctionRecord[] = [];
  let total = 0;
  for (let pageIndex = 1; found.length < limit; pageIndex++) {
    const query = {
      name: filter.name,
      versionNumber: filter.at === undefined ? undefined : normalizeVersion(filter.at),
      pageIndex: String(pageIndex),
      pageSize: String(pageSize),
    };
    const { result } = await callMeta(client, 'GET', metaPath('/functions', query));
    const page = result as { total: number; functions: readonly FunctionRecord[] };
    total = page.total;
    found.push(...page.functions);
    if (page.functions.length < pageSize) break;
  }
  return { functions: found.slice(0, limit), total };
}

function show(io: Io, options: ReadOptions, functions: readonly FunctionRecord[]): void {
  if (options.json === true) printJson(io, functions);
  else if (options.quiet === true) for (const fn of functions) io.out.write(`${fn.functionVersionUrn}\n`);
  else printTable(io, COLUMNS, functions);
}

const COLUMNS = [
  { title: 'NAME', text: (fn: FunctionRecord) => fn.name, isFlexible: true, gives: 'last' as const },
  { title: 'VERSION', text: (fn: FunctionRecord) => fn.versionNumber },
  { title: 'KIND', text: (fn: FunctionRecord) => fn.kind ?? '-' },
  { title: 'RUNTIME', text: (fn: FunctionRecord) => fn.runtime, isFlexible: true },
  { title: 'REVISION', text: (fn: FunctionRecord) => fn.revisionId },
  { title: 'CHANGED', text: (fn: FunctionRecord) => age((fn.updateTime || fn.createTime).replace(' UTC', 'Z')) },
  { title: 'NOTE', text: (fn: FunctionRecord) => fn.versionDesc || fn.description || '-', isFlexible: true },
];

function codeOf({ storageType, codePath, bucketId, objectId }: FunctionRecord): string | undefined {
  if (storageType === 's3') return `s3 ${bucketId}/${objectId}`;
  return storageType ? `${storageType} ${codePath}` : codePath;
}
