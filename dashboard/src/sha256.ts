/** Rounding constants: the first 32 bits of the fractions of the cube roots of the first 64 primes. */
const K = fractions(64, 1 / 3);
/** First state: the first 32 bits of the fractions of the square roots of the first 8 primes. */
const BEGIN = fractions(8, 1 / 2);
const BLOCK_BYTES = 64;

/** Returns the SHA-256 of bytes in hexadecimal digits, also on pages over HTTP, where browsers offer none. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const subtle = (globalThis.crypto as Partial<Crypto> | undefined)?.subtle;
  return hex(subtle === undefined ? digest(bytes) : new Uint8Array(await subtle.digest('SHA-256', bytes)));
}

/** Computes SHA-256 (FIPS 180-4) without the browser's own. */
export function digest(bytes: Uint8Array): Uint8Array {
  const state = Uint32Array.from(BEGIN);
  const words = new Uint32Array(64);
  const wholeBytes = bytes.length - (bytes.length % BLOCK_BYTES);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < wholeBytes; at += BLOCK_BYTES) addBlock(state, words, view, at);
  const end = lastBlocks(bytes.subarray(wholeBytes), bytes.length);
  for (let at = 0; at < end.byteLength; at += BLOCK_BYTES) addBlock(state, words, end, at);
  const result = new DataView(new ArrayBuffer(32));
  for (const [index, word] of state.entries()) result.setUint32(index * 4, word);
  return new Uint8Array(result.buffer);
}

/** Returns the rest of the bytes with a one bit, zeros, and the length in bits. */
function lastBlocks(rest: Uint8Array, lengthBytes: number): DataView {
  const end = new Uint8Array(rest.length + 9 > BLOCK_BYTES ? 2 * BLOCK_BYTES : BLOCK_BYTES);
  end.set(rest);
  end[rest.length] = 0x80;
  const view = new DataView(end.buffer);
  view.setBigUint64(end.length - 8, BigInt(lengthBytes) * 8n);
  return view;
}

function addBlock(state: Uint32Array, words: Uint32Array, block: DataView, at: number): void {
  for (let i = 0; i < 16; i += 1) words[i] = block.getUint32(at + i * 4);
  for (let i = 16; i < 64; i += 1) {
    const [near, far] = [word(words, i - 2), word(words, i - 15)];
    const sum = turned(near, 17) ^ turned(near, 19) ^ (near >>> 10);
    words[i] = sum + word(words, i - 7) + (turned(far, 7) ^ turned(far, 18) ^ (far >>> 3)) + word(words, i - 16);
  }
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
  for (let i = 0; i < 64; i += 1) {
    const choice = (e & f) ^ (~e & g);
    const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + word(K, i) + word(words, i)) | 0;
    const two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  for (const [index, value] of [a, b, c, d, e, f, g, h].entries()) state[index] = word(state, index) + value;
}

function word(words: Uint32Array, index: number): number {
  return words[index] as number;
}

function turned(value: number, bits: number): number {
  return (value >>> bits) | (value << (32 - bits));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}

function fractions(count: number, power: number): Uint32Array {
  const primes: number[] = [];
  for (let candidate = 2; primes.length < count; candidate += 1) {
    if (primes.every(prime => candidate % prime !== 0)) primes.push(candidate);
  }
  return Uint32Array.from(primes, prime => (prime ** power % 1) * 2 ** 32);
}
