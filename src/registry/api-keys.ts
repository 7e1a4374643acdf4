import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { notFound, resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Database } from '../storage/database.ts';
import { deleteApiKey, findApiKey, insertApiKey, listApiKeys } from '../storage/queries/api-keys.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';

export type ApiKeyRole = 'viewer' | 'user' | 'developer';

/** A key of the E2B protocol as shown to clients, without its text. */
export interface ApiKey {
  readonly id: string;
  readonly role: ApiKeyRole;
  readonly createdAtMs: number;
}

export interface ApiKeysOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
}

/** Bytes of chance in a key, as 40 hexadecimal digits. */
const KEY_BYTES = 20;
const API_KEY = /^e2b_[0-9a-f]{40}$/;
/** Shape of a key, for error messages. */
export const API_KEY_SHAPE = '"e2b_" and 40 lower-case hexadecimal digits';

export function isApiKey(text: string): boolean {
  return API_KEY.test(text);
}

/** Checks for the id of a key of AWS clients. Both kinds of keys share a table. */
export function isIdOfAwsKey(id: string): boolean {
  return id.startsWith('aws-');
}

/** Keys of tenants for the E2B protocol. The database has their hashes, so it cannot give out a key. */
export class ApiKeys {
  readonly #options: ApiKeysOptions;

  constructor(options: ApiKeysOptions) {
    this.#options = options;
  }

  /** Makes a key, whose text no later call returns. Fails with `resource_exhausted`. */
  async create(tenant: string, role: ApiKeyRole): Promise<{ readonly key: ApiKey; readonly text: string }> {
    const text = `e2b_${randomBytes(KEY_BYTES).toString('hex')}`;
    const key = { id: randomUUID(), role, createdAtMs: Date.now() };
    const row = { hash: hashOfKey(text), id: key.id, tenant, role, created_at_ms: key.createdAtMs };
    if (!(await this.#options.writes.write(insertApiKey, row, LIMITS.apiKeysPerTenant))) {
      throw resourceExhausted(`there are ${LIMITS.apiKeysPerTenant} keys already; delete one first`);
    }
    return { key, text };
  }

  /** Returns the tenant and role of a key. null: the key does not exist. */
  async find(text: string): Promise<{ readonly tenant: string; readonly role: ApiKeyRole } | null> {
    if (!isApiKey(text)) return null;
    return (await findApiKey(this.#options.database, hashOfKey(text))) ?? null;
  }

  /** Returns the keys of a tenant, oldest first. */
  async list(tenant: string): Promise<readonly ApiKey[]> {
    const rows = await listApiKeys(this.#options.database, tenant);
    return rows
      .filter(({ id }) => !isIdOfAwsKey(id))
      .map(({ id, role, created_at_ms }) => ({ id, role, createdAtMs: Number(created_at_ms) }));
  }

  /** Deletes a key, which opens nothing from then on. Fails with `not_found`. */
  async remove(tenant: string, id: string): Promise<void> {
    if (isIdOfAwsKey(id) || !(await this.#options.writes.write(deleteApiKey, tenant, id))) {
      throw notFound(`API key not found: ${id}`);
    }
  }
}

/** A key has 160 random bits, so its hash needs no salt. */
export function hashOfKey(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
