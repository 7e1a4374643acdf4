import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { S3Client } from '@aws-sdk/client-s3';
import { openS3, S3_REQUEST_TIMEOUT_MS, type S3Account, s3Failure, statusOf } from './s3.ts';

export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
  readonly changedAtMs: number;
}

/**
 * Files that every node can read, in an S3 bucket below a prefix of this service alone. All methods fail with
 * `unavailable` when the server does not answer, and with `failed_precondition` when it refuses.
 */
export interface ObjectStore {
  /** Stores a whole file, or nothing. `sha256` (hex) saves a read of the file. */
  put(key: string, file: string, sha256?: string): Promise<void>;
  /** Reads an object from a byte on; null when it does not exist. */
  get(key: string, start?: number): Promise<Readable | null>;
  /** Returns all objects below `prefix`, ordered by key. */
  list(prefix: string): Promise<readonly StoredObject[]>;
  /** Removes objects; missing ones are no error. */
  remove(keys: readonly string[]): Promise<void>;
  close(): void;
}

/** `s3://bucket/some/prefix`; the prefix may be missing. */
export const OBJECT_STORE_URL = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([A-Za-z0-9!_.*'()/-]*))?$/;
const DELETE_AT_ONCE = 1000;
const TRIES = 3;

/** Creates an object store. `url` must match `OBJECT_STORE_URL`. Connects at the first use. */
export function createObjectStore(url: string, account: S3Account): ObjectStore {
  const [, bucket = '', prefix = ''] = OBJECT_STORE_URL.exec(url) ?? [];
  return new S3ObjectStore(bucket, prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`, account);
}

class S3ObjectStore implements ObjectStore {
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #account: S3Account;
  #client: Promise<S3Client> | undefined;

  constructor(bucket: string, prefix: string, account: S3Account) {
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#account = account;
  }

  async put(key: string, file: string, sha256?: string): Promise<void> {
    const hash = sha256 ?? (await sha256Of(file));
    const { size: bytes } = await stat(file);
    const { PutObjectCommand } = await import('@aws-sdk/client-s3');
    for (let tried = 1; ; tried++) {
      // The client cannot retry a stream that it has read, so retry here.
      const body = createReadStream(file);
      try {
        await this.#send(client =>
          client.send(
            new PutObjectCommand({
              Bucket: this.#bucket,
              Key: this.#prefix + key,
              Body: body,
              ContentLength: bytes,
              ChecksumSHA256: Buffer.from(hash, 'hex').toString('base64'),
            }),
            { abortSignal: AbortSignal.timeout(S3_REQUEST_TIMEOUT_MS) },
          ),
        );
        return;
      } catch (error) {
        const mayPass = (statusOf(error) ?? 500) >= 500;
        if (tried >= TRIES || !mayPass) throw s3Failure(`the object ${key} could not be stored`, error);
      } finally {
        body.destroy();
      }
    }
  }

  async get(key: string, start = 0): Promise<Readable | null> {
    const { GetObjectCommand } = await import('@aws-sdk/client-s3');
    try {
      const range = start > 0 ? { Range: `bytes=${start}-` } : {};
      const command = new GetObjectCommand({ Bucket: this.#bucket, Key: this.#prefix + key, ...range });
      return (await this.#send(client => client.send(command))).Body as Readable;
    } catch (error) {
      if (statusOf(error) === 404) return null;
      throw s3Failure(`the object ${key} could not be read`, error);
    }
  }

  async list(prefix: string): Promise<readonly StoredObject[]> {
    const { ListObjectsV2Command } = await import('@aws-sdk/client-s3');
    const found: StoredObject[] = [];
    try {
      for (let token: string | undefined; ; ) {
        const command = new ListObjectsV2Command({
          Bucket: this.#bucket,
          Prefix: this.#prefix + prefix,
          ContinuationToken: token,
        });
        const page = await this.#send(client => client.send(command));
        for (const { Key, Size, LastModified } of page.Contents ?? []) {
          if (Key === undefined) continue;
          const changedAtMs = LastModified?.getTime() ?? Date.now();
          found.push({ key: Key.slice(this.#prefix.length), bytes: Size ?? 0, changedAtMs });
        }
        token = page.NextContinuationToken;
        if (page.IsTruncated !== true || token === undefined) return found;
      }
    } catch (error) {
      throw s3Failure(`the objects below ${prefix} could not be listed`, error);
    }
  }

  async remove(keys: readonly string[]): Promise<void> {
    const { DeleteObjectsCommand } = await import('@aws-sdk/client-s3');
    try {
      for (let at = 0; at < keys.length; at += DELETE_AT_ONCE) {
        const Objects = keys.slice(at, at + DELETE_AT_ONCE).map(key => ({ Key: this.#prefix + key }));
        const command = new DeleteObjectsCommand({ Bucket: this.#bucket, Delete: { Objects, Quiet: true } });
        const { Errors = [] } = await this.#send(client => client.send(command));
        const [first] = Errors.filter(({ Code }) => Code !== 'NoSuchKey');
        if (first !== undefined) throw new Error(first.Message ?? first.Code ?? 'no reason was given');
      }
    } catch (error) {
      throw s3Failure('objects could not be removed', error);
    }
  }

  close(): void {
    void this.#client?.then(client => client.destroy());
  }

  async #send<T>(request: (client: S3Client) => Promise<T>): Promise<T> {
    this.#client ??= openS3(this.#account);
    return await request(await this.#client);
  }
}

export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
