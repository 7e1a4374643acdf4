import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  alreadyExists,
  failedPrecondition,
  invalidRequest,
  notFound,
  resourceExhausted,
  type ServiceError,
} from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { isSecretName, readSecretKeys, SECRET_KEY_RULE, SECRET_NAME_RULE, type SecretSource } from '../core/secret.ts';
import { flushDirectory } from '../lib/file-writes.ts';
import { isAbsent } from '../lib/system-errors.ts';
import type { Database } from '../storage/database.ts';
import {
  dropSecret,
  findSecrets,
  lackingSecret,
  listSealedWith,
  listSecrets,
  putSecret,
  resealSecret,
  secretKeyIds,
} from '../storage/queries/secrets.ts';
import type { SecretTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { SecretKeys } from './secret-keys.ts';

export interface SecretsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Keys from the settings; null: no key is set. */
  readonly keys: readonly Uint8Array[] | null;
  /**
   * File for a generated key, if the settings have no key. The first secret creates the file. null: no file,
   * because replicas need a common key.
   */
  readonly ownKeyFile: string | null;
  /** True if the service may start with secrets that none of its keys can decrypt. */
  readonly allowUnreadable: boolean;
  readonly log: { info(fields: object, text: string): void; warn(fields: object, text: string): void };
}

/** Secret as shown to clients, without its value. */
export interface Secret {
  readonly name: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  /** True if this service has the key of the secret. */
  readonly isReadable: boolean;
}

const NO_KEY =
  'this service keeps no secrets: replicas over PostgreSQL need a key that all of them have (secrets.keyFile, secrets.key or secrets.keyCommand)';
const RESEAL_AT_ONCE = 200;
/** Secrets that one line of the log names. */
const MAX_NAMED = 10;
/** Decrypted values of one tenant in memory: the current ones and as many earlier ones. */
const MAX_OPENED = 2 * LIMITS.secretsPerTenant;

/**
 * Secrets of tenants. Clients write values, and only the start of a sandbox reads them. The database has them
 * encrypted, and the key is stored elsewhere.
 */
export class Secrets implements SecretSource {
  readonly #options: SecretsOptions;
  /** Decrypted values by tenant and version. They stay after a value was replaced or deleted. */
  readonly #opened = new Map<string, Map<string, string>>();
  #keys: SecretKeys | null = null;
  #making: Promise<SecretKeys> | undefined;

  constructor(options: SecretsOptions) {
    this.#options = options;
    if (options.keys !== null) this.#keys = new SecretKeys(options.keys);
  }

  /**
   * Reads the keys, and encrypts secrets of older keys with the newest. Fails with `failed_precondition` if a
   * secret is encrypted with a missing key.
   */
  async start(): Promise<void> {
    const { database, ownKeyFile, allowUnreadable, log } = this.#options;
    if (this.#keys === null && ownKeyFile !== null) this.#keys = await readKeyFile(ownKeyFile);
    const used = await secretKeyIds(database);
    const foreign = used.filter(({ keyId }) => this.#keys?.has(keyId) !== true);
    if (foreign.length > 0) {
      const problem = unreadable(foreign, this.#keys, this.#whereToPut());
      if (!allowUnreadable) throw failedPrecondition(problem);
      log.warn({}, problem);
    }
    if (this.#keys === null) {
      if (ownKeyFile === null) log.warn({}, NO_KEY);
      return;
    }
    const { newest } = this.#keys;
    const older = used.map(({ keyId }) => keyId).filter(id => id !== newest && this.#keys?.has(id) === true);
    if (older.length > 0) await this.#reseal(this.#keys, older);
  }

  /**
   * Stores a secret. Fails with `invalid_request`, `resource_exhausted`, and `failed_precondition` if the
   * service has no key.
   */
  async put(tenant: string, name: string, value: string): Promise<Secret> {
    if (!isSecretName(name)) throw invalidRequest(`the name of a secret must be ${SECRET_NAME_RULE}`);
    const keys = await this.#keysToSeal();
    const { keyId, sealed } = keys.seal({ tenant, name }, value);
    const nowMs = Date.now();
    const row = { tenant, name, key_id: keyId, sealed, created_at_ms: nowMs, updated_at_ms: nowMs };
    const written = await this.#options.writes.write(putSecret, row, LIMITS.secretsPerTenant);
    if (written === null) {
      throw resourceExhausted(`there are ${LIMITS.secretsPerTenant} secrets already; delete one first`);
    }
    const { createdAtMs, updatedAtMs } = written;
    return { name, createdAtMs, updatedAtMs, isReadable: true };
  }

  async list(tenant: string): Promise<readonly Secret[]> {
    const rows = await listSecrets(this.#options.database, tenant);
    return rows.map(({ name, key_id, created_at_ms, updated_at_ms }) => ({
      name,
      createdAtMs: Number(created_at_ms),
      updatedAtMs: Number(updated_at_ms),
      isReadable: this.#keys?.has(key_id) === true,
    }));
  }

  /** Deletes a secret. Fails with `not_found`, and with `already_exists` while a record refers to it. */
  async remove(tenant: string, name: string): Promise<void> {
    const dropped = isSecretName(name)
      ? await this.#options.writes.write(dropSecret, tenant, name)
      : ({ kind: 'missing' } as const);
    if (dropped.kind === 'missing') throw notFound(`secret not found: ${name}`);
    if (dropped.kind === 'in use') {
      throw alreadyExists(
        `secret ${name} is in use: ${dropped.user} refers to it; its value can be changed at any time`,
      );
    }
  }

  async valuesOf(tenant: string, names: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const rows = await findSecrets(this.#options.database, tenant, names);
    const values = new Map<string, string>();
    for (const name of names) {
      const row = rows.find(each => each.name === name);
      if (row === undefined) throw missing(name);
      const value = this.#open(row);
      if (value === null) throw notOpened(name);
      values.set(name, value);
    }
    return values;
  }

  /**
   * Returns every value of a tenant that this service knows: the current ones, and earlier ones that it has
   * read since its start, because an instance may still have them.
   */
  async knownValues(tenant: string): Promise<Iterable<string>> {
    const { database } = this.#options;
    const rows = await listSecrets(database, tenant);
    const isNew = (row: SecretVersion) => this.#opened.get(tenant)?.has(versionOf(row)) !== true;
    const names = rows.filter(isNew).map(({ name }) => name);
    if (names.length > 0) for (const row of await findSecrets(database, tenant, names)) this.#open(row);
    return this.#opened.get(tenant)?.values() ?? [];
  }

  async check(tenant: string, names: readonly string[]): Promise<void> {
    const lacking = await this.#options.writes.write(lackingSecret, tenant, names);
    if (lacking !== null) throw missing(lacking);
  }

  /** Decrypts and remembers a value. Returns null if this service does not have its key. */
  #open(row: SecretTable): string | null {
    const value = this.#keys?.open(row, { keyId: row.key_id, sealed: row.sealed }) ?? null;
    if (value === null) return null;
    const opened = this.#opened.get(row.tenant) ?? new Map<string, string>();
    this.#opened.set(row.tenant, opened);
    if (opened.size >= MAX_OPENED) opened.delete(opened.keys().next().value as string);
    opened.set(versionOf(row), value);
    return value;
  }

  /** Returns advice on where to put a missing key. */
  #whereToPut(): string {
    const { keys, ownKeyFile } = this.#options;
    if (keys === null) {
      return ownKeyFile === null
        ? 'name it in secrets.keyFile'
        : `put it back at ${ownKeyFile} or name it in secrets.keyFile`;
    }
    const own = ownKeyFile === null ? '' : ` (one that the service made for itself is at ${ownKeyFile})`;
    return `put it${own} on a line behind the others that secrets.keyFile, secrets.key or secrets.keyCommand gives`;
  }

  async #keysToSeal(): Promise<SecretKeys> {
    if (this.#keys !== null) return this.#keys;
    const { ownKeyFile } = this.#options;
    if (ownKeyFile === null) throw failedPrecondition(NO_KEY);
    this.#making ??= makeKeyFile(ownKeyFile).finally(() => {
      this.#making = undefined;
    });
    this.#keys = await this.#making;
    return this.#keys;
  }

  async #reseal(keys: SecretKeys, older: readonly string[]): Promise<void> {
    const { database, writes, log } = this.#options;
    const failed = new Set<string>();
    let count = 0;
    for (;;) {
      const rows = (await listSealedWith(database, older, RESEAL_AT_ONCE + failed.size)).filter(
        row => !failed.has(`${row.tenant}/${row.name}`),
      );
      if (rows.length === 0) break;
      for (const row of rows) {
        const value = keys.open(row, { keyId: row.key_id, sealed: row.sealed });
        const { tenant, name, key_id, updated_at_ms } = row;
        if (value === null) {
          failed.add(`${tenant}/${name}`);
          continue;
        }
        const { keyId, sealed } = keys.seal(row, value);
        // The write has no effect if another replica has encrypted the secret or a client has changed it.
        const before = { tenant, name, key_id, updated_at_ms: Number(updated_at_ms) };
        if (await writes.write(resealSecret, before, { key_id: keyId, sealed })) count += 1;
      }
    }
    log.info({ count }, 'secrets were encrypted with the newest key');
    if (failed.size > 0) {
      const secrets = [...failed].slice(0, MAX_NAMED);
      log.warn({ count: failed.size, secrets }, 'secrets cannot be decrypted; they keep their older key');
    }
  }
}

type SecretVersion = Pick<SecretTable, 'name' | 'updated_at_ms'>;

/** Returns a text that differs between two values of a secret (`putSecret`). */
function versionOf({ name, updated_at_ms }: SecretVersion): string {
  return `${name} ${updated_at_ms}`;
}

function missing(name: string): ServiceError {
  return failedPrecondition(`secret does not exist: ${name}`);
}

function notOpened(name: string): ServiceError {
  return failedPrecondition(
    `secret cannot be read: ${name}: it is encrypted with a key that this service does not have`,
  );
}

function unreadable(
  foreign: readonly { readonly keyId: string; readonly count: number }[],
  keys: SecretKeys | null,
  where: string,
): string {
  const what = foreign.map(({ keyId, count }) => `${count} with the key ${keyId}`).join(', ');
  const has = keys === null ? 'has no key' : `has the key ${keys.ids.join(', ')}`;
  return `secrets in the database cannot be read: they are encrypted, ${what}, and this service ${has}; ${where}, or set secrets.allowUnreadable to start without them`;
}

/** Returns the keys; null if the file does not exist. */
async function readKeyFile(file: string): Promise<SecretKeys | null> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (isAbsent(error)) return null;
    throw failedPrecondition(`the key of secrets ${file} cannot be read`, { cause: error });
  }
  const keys = readSecretKeys(text);
  if (keys === null) throw failedPrecondition(`the key of secrets ${file} must hold ${SECRET_KEY_RULE}`);
  return new SecretKeys(keys);
}

async function makeKeyFile(file: string): Promise<SecretKeys> {
  const key = randomBytes(32);
  await rm(`${file}.new`, { force: true });
  // The key must be durable before the first secret, which would be lost without it.
  await writeFile(`${file}.new`, `${key.toString('base64')}\n`, { mode: 0o600, flag: 'wx', flush: true });
  await rename(`${file}.new`, file);
  await flushDirectory(dirname(file));
  return new SecretKeys([new Uint8Array(key)]);
}
