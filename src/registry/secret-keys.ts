import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Owner of a secret. A value that was copied to another name or tenant cannot be decrypted. */
export interface SecretOwner {
  readonly tenant: string;
  readonly name: string;
}

export interface Sealed {
  readonly keyId: string;
  /** Nonce, ciphertext and tag. */
  readonly sealed: Uint8Array;
}

/** Keys by id: the first one encrypts, all decrypt. */
export class SecretKeys {
  readonly #keys: ReadonlyMap<string, Uint8Array>;
  /** Id of the key that encrypts. */
  readonly newest: string;

  /** Creates the set. `keys`: at least one, 32 bytes each. */
  constructor(keys: readonly Uint8Array[]) {
    this.#keys = new Map(keys.map(key => [idOf(key), key]));
    const [newest] = this.#keys.keys();
    if (newest === undefined) throw new TypeError('secrets need at least one key');
    this.newest = newest;
  }

  get ids(): readonly string[] {
    return [...this.#keys.keys()];
  }

  has(keyId: string): boolean {
    return this.#keys.has(keyId);
  }

  seal(owner: SecretOwner, value: string): Sealed {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#keys.get(this.newest) as Uint8Array, nonce);
    cipher.setAAD(bindingOf(owner));
    const text = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()]);
    return { keyId: this.newest, sealed: new Uint8Array(Buffer.concat([nonce, text, cipher.getAuthTag()])) };
  }

  /** Decrypts a value. Returns null if the key is missing or the value was not sealed for this owner. */
  open(owner: SecretOwner, { keyId, sealed }: Sealed): string | null {
    const key = this.#keys.get(keyId);
    if (key === undefined || sealed.length < NONCE_BYTES + TAG_BYTES) return null;
    const bytes = Buffer.from(sealed);
    const decipher = createDecipheriv(ALGORITHM, key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
    decipher.setAAD(bindingOf(owner));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      return decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
    } catch {
      return null;
    }
  }
}

/** Returns an id of a key that reveals no part of the key. */
function idOf(key: Uint8Array): string {
  return createHmac('sha256', key).update('rookery: the id of a key of secrets').digest('hex').slice(0, 16);
}

function bindingOf({ tenant, name }: SecretOwner): Buffer {
  return Buffer.from(JSON.stringify(['rookery secret', 1, tenant, name]));
}
