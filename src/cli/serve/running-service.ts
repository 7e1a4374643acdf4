import { type Config, defaultDataDir } from '../../config/config.ts';
import { Client } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';

/** The fields of a setting that are shown. A service of another version may omit fields. */
export interface Setting {
  readonly name: string;
  readonly value: unknown;
  readonly is_default: boolean;
  readonly source?: string;
}

export interface RunningService {
  readonly address: string;
  /** Null when the service does not show its settings to this user. */
  readonly settings: readonly Setting[] | null;
}

const TIMEOUT_MS = 2000;
const EVERY_ADDRESS = new Set(['0.0.0.0', '::']);

/** Returns the service at the address where `serve` with this configuration would listen, or null. */
export async function findRunningService(io: Io, { host, port }: Config): Promise<RunningService | null> {
  if (port === 0) return null;
  const reached = EVERY_ADDRESS.has(host) ? '127.0.0.1' : host;
  const address = `http://${reached.includes(':') ? `[${reached}]` : reached}:${port}`;
  const client = await Client.open({ address }, io);
  const isThere = await client.text('GET', '/healthz', { timeoutMs: TIMEOUT_MS }).catch(() => null);
  if (isThere === null) return null;
  const answer = await client.json('GET', '/api/settings', { timeoutMs: TIMEOUT_MS }).catch(() => null);
  return { address, settings: (answer?.settings as readonly Setting[] | undefined) ?? null };
}

/** Returns the configuration with the data directory of the running service, unless the user chose one. */
export function withDataDirOf(
  running: RunningService | null,
  config: Config,
  { environment }: Pick<Io, 'environment'>,
) {
  const isChosen = config.dataDir !== defaultDataDir({ environment, isRoot: process.getuid?.() === 0 });
  const dataDir = running?.settings?.find(({ name }) => name === 'dataDir')?.value;
  return isChosen || typeof dataDir !== 'string' ? config : { ...config, dataDir };
}
