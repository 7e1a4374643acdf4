/**
 * The keys that encrypt secrets: 32 bytes each, in Base64 or hexadecimal, one on a line. The first key
 * encrypts; all keys decrypt.
 */

const KEY_BYTES = 32;

export const SECRET_KEY_RULE =
  'one key on a line, each of 32 bytes in Base64 or hexadecimal ("openssl rand -base64 32" makes one)';

/** Reads the keys. Returns null when the text breaks `SECRET_KEY_RULE`. */
export function readSecretKeys(text: string): readonly Uint8Array[] | null {
  const lines = text.split(/\s+/).filter(line => line !== '');
  const keys = lines.map(readKey).filter(key => key !== null);
  return keys.length === 0 || keys.length < lines.length ? null : keys;
}

function readKey(line: string): Uint8Array | null {
  if (/^[0-9A-Fa-f]{64}$/.test(line)) return new Uint8Array(Buffer.from(line, 'hex'));
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(line)) return null;
  const key = new Uint8Array(Buffer.from(line, 'base64'));
  return key.length === KEY_BYTES ? key : null;
}
