import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';
import { callMeta, metaPath } from './meta-call.ts';
import { parseNamedVersion } from './records.ts';

interface ReserveOptions extends ClientOptions {
  readonly label?: string;
  readonly cluster?: string;
  readonly min?: string;
  readonly max?: string;
  readonly delete?: boolean;
  readonly json?: boolean;
}

interface Reserved {
  readonly instanceLabel: string;
  readonly instanceConfigInfos: readonly ClusterAnswer[];
}

interface ClusterAnswer {
  readonly clusterId: string;
  readonly minInstance: number;
  readonly maxInstance: number;
}

const PATH = '/functions/reserve-instance';

/** Lists, writes or deletes the reserved instances of a version: `rookery function reserve`. */
export async function reserve(io: Io, given: string, options: ReserveOptions): Promise<void> {
  const { name: funcName, version } = parseNamedVersion(given);
  const { label, cluster, min, max } = options;
  const changes = min !== undefined || max !== undefined;
  if (changes && label === undefined) throw usageError('--min and --max need the --label that they are for.');
  if (changes && options.delete === true) throw usageError('--delete takes neither --min nor --max.');
  if (cluster !== undefined && !changes)
    throw usageError('--cluster says what --min and --max are for: give one of them.');
  const client = await Client.open(options, io);
  const base = { funcName, version };

  if (options.delete === true) {
    await callMeta(client, 'DELETE', metaPath(PATH, { ...base, instanceLabel: label }));
    if (options.json === true) printJson(io, { deleted: { ...base, instanceLabel: label ?? null } });
    return;
  }
  const all = await listReserved(client, base);
  if (!changes) {
    show(io, options, label === undefined ? all : all.filter(reserved => reserved.instanceLabel === label));
    return;
  }
  const isThere = all.some(reserved => reserved.instanceLabel === label);
  const info = { clusterId: cluster, minInstance: min, maxInstance: max };
  const answer = await callMeta(client, isThere ? 'PUT' : 'POST', PATH, {
    ...base,
    instanceLabel: label,
    instanceConfigInfos: [info],
  });
  const written = answer.instanceConfigInfos as readonly ClusterAnswer[];
  show(io, options, [{ instanceLabel: label as string, instanceConfigInfos: written }]);
}

async function listReserved(client: Client, base: Record<string, string>): Promise<readonly Reserved[]> {
  return (await callMeta(client, 'GET', metaPath(PATH, base))).results as readonly Reserved[];
}

function show(io: Io, options: ReserveOptions, reserved: readonly Reserved[]): void {
  if (options.json === true) {
    printJson(io, reserved);
    return;
  }
  const rows = reserved.flatMap(({ instanceLabel, instanceConfigInfos }) =>
    instanceConfigInfos.map(cluster => ({ instanceLabel, ...cluster })),
  );
  printTable(io, COLUMNS, rows);
}

type Row = ClusterAnswer & { readonly instanceLabel: string };
const COLUMNS = [
  { title: 'LABEL', text: (row: Row) => row.instanceLabel, isFlexible: true },
  { title: 'CLUSTER', text: (row: Row) => row.clusterId, isFlexible: true },
  { title: 'MIN', text: (row: Row) => String(row.minInstance) },
  { title: 'MAX', text: (row: Row) => String(row.maxInstance) },
];
