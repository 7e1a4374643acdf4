import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { notFound, resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Database } from '../storage/database.ts';
import { deleteApiKey, findApiKey, insertApiKey, listApiKeys } from '../storage/queries/api-keys.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type ApiKey, type ApiKeyRole, hashOfKey, isIdOfAwsKey } from './api-keys.ts';

/** Tenant, role and secret of an access key of ours. */
export interface AwsKey {
  readonly tenant: string;
  readonly role: ApiKeyRole;
  readonly secret: string;
}

export interface AwsKeysOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** The key of this installation, from which secrets are derived. */
  readonly root: Buffer;
}

/** Bytes of chance in an access key id, as 40 hexadecimal digits. */
const ID_BYTES = 20;
const ACCESS_KEY_ID = /^RKAW[0-9A-F]{40}$/;

/**
 * Keys with which clients of AWS sign requests.
 * A secret is derived from its access key id, of which the database has the hash only. So the database alone
 * cannot give out a key.
 */
export class AwsKeys {
  readonly #options: AwsKeysOptions;

  constructor(options: AwsKeysOptions) {
    this.#options = options;
  }

  /** Makes a key, whose secret no later call returns. Fails with `resource_exhausted`. */
  async create(
    tenant: string,
    role: ApiKeyRole,
  ): Promise<{ readonly key: ApiKey; readonly accessKeyId: string; readonly secret: string }> {
    const accessKeyId = `RKAW${randomBytes(ID_BYTES).toString('hex').toUpperCase()}`;
    const key = { id: `aws-${randomUUID()}`, role, createdAtMs: Date.now() };
    const row = { hash: hashOfKey(accessKeyId), id: key.id, tenant, role, created_at_ms: key.createdAtMs };
    if (!(await this.#options.writes.write(insertApiKey, row, LIMITS.apiKeysPerTenant))) {
      throw resourceExhausted(`there are ${LIMITS.apiKeysPerTenant} keys already; delete one first`);
    }
    return { key, accessKeyId, secret: this.#secretOf(accessKeyId) };
  }

  /** Returns the key with this access key id. null: it does not exist. */
  async find(accessKeyId: string): Promise<AwsKey | null> {
    if (!ACCESS_KEY_ID.test(accessKeyId)) return null;
    const found = await findApiKey(this.#options.database, hashOfKey(accessKeyId));
    return found === undefined ? null : { ...found, secret: this.#secretOf(accessKeyId) };
  }

  /** Returns the keys of a tenant, oldest first. */
  async list(tenant: string): Promise<readonly ApiKey[]> {
    const rows = await listApiKeys(this.#options.database, tenant);
    return rows
      .filter(({ id }) => isIdOfAwsKey(id))
      .map(({ id, role, created_at_ms }) => ({ id, role, createdAtMs: Number(created_at_ms) }));
  }

  /** Deletes a key, which signs nothing from then on. Fails with `not_found`. */
  async remove(tenant: string, id: string): Promise<void> {
    if (!isIdOfAwsKey(id) || !(await this.#options.writes.write(deleteApiKey, tenant, id))) {
      throw notFound(`AWS key not found: ${id}`);
    }
  }

  #secretOf(accessKeyId: string): string {
    return createHmac('sha256', this.#options.root).update(`aws secret of ${accessKeyId}`).digest('base64url');
  }
}
