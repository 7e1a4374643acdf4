import { createLocalJWKSet, errors, type FlattenedJWSInput, type JSONWebKeySet, type JWSHeaderParameters } from 'jose';
import { Away, messageOf } from '../../core/error.ts';

type FindKey = ReturnType<typeof createLocalJWKSet>;

/** Notified after each fetch. `problem` is null if the fetch returned keys. */
export type FetchObserver = (problem: string | null) => void;

const TIMEOUT_MS = 5_000;
/** Age up to which keys are used without another fetch. A withdrawn key stays accepted up to this long. */
const FRESH_MS = 10 * 60_000;
/** Age up to which the last keys are used while the endpoint fails. */
const STALE_MS = 24 * 3_600_000;
/** Minimum age of the keys before a token with an unknown key causes another fetch. */
const UNKNOWN_KEY_PAUSE_MS = 30_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
const MAX_SET_BYTES = 1024 * 1024;

/**
 * Fetches and caches the keys behind a JWKS URL. Runs one fetch at a time.
 * While the endpoint fails, the last keys stay in use for a day, and the pauses between fetches grow. Without
 * keys `find` fails with `Away` (503), because no token can be verified.
 */
export class RemoteKeys {
  readonly #url: URL;
  readonly #fetched: FetchObserver;
  #find: FindKey | null = null;
  #fetchedAtMs = 0;
  #failures = 0;
  #nextTryAtMs = 0;
  #problem = '';
  #fetching: Promise<void> | null = null;

  constructor(url: URL, fetched: FetchObserver) {
    this.#url = url;
    this.#fetched = fetched;
  }

  /**
   * Returns the key of a token. Fails with an error of `jose` if there is none, and with `Away` without keys.
   */
  async find(header?: JWSHeaderParameters, token?: FlattenedJWSInput): ReturnType<FindKey> {
    if (this.#ageMs() > FRESH_MS) {
      const refresh = this.#refresh();
      // While the endpoint is known to fail, callers use the last keys and do not wait for the fetch.
      if (this.#failures === 0 || !this.#isUsable()) await refresh;
    }
    const find = this.#isUsable() ? this.#find : null;
    if (find === null) throw this.#away();
    try {
      return await find(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      if (this.#failures === 0 && this.#ageMs() < UNKNOWN_KEY_PAUSE_MS) throw error;
      await this.#refresh();
      // The key may be among those that could not be fetched.
      if (this.#failures > 0 || this.#find === null) throw this.#away();
      return await this.#find(header, token);
    }
  }

  #ageMs(): number {
    // After the clock was set back, the age is unknown, and the keys count as expired.
    const ageMs = Date.now() - this.#fetchedAtMs;
    return this.#find === null || ageMs < 0 ? Number.POSITIVE_INFINITY : ageMs;
  }

  #isUsable(): boolean {
    return this.#find !== null && this.#ageMs() <= STALE_MS;
  }

  #away(): Away {
    const seconds = Math.max(1, Math.ceil((this.#nextTryAtMs - Date.now()) / 1000));
    const retryAfterSeconds = Math.min(seconds, LONGEST_PAUSE_MS / 1000);
    return new Away('the keys that verify tokens cannot be fetched now: see jwt.jwksUrl', {
      cause: new Error(this.#problem),
      retryAfterSeconds,
    });
  }

  /**
   * Fetches the keys, or waits for the running fetch. Does nothing during the pause after a failure. Never
   * rejects.
   */
  async #refresh(): Promise<void> {
    const waitMs = this.#nextTryAtMs - Date.now();
    if (this.#fetching === null && this.#failures > 0 && waitMs > 0 && waitMs <= LONGEST_PAUSE_MS) return;
    this.#fetching ??= this.#fetchOnce().finally(() => {
      this.#fetching = null;
    });
    await this.#fetching;
  }

  async #fetchOnce(): Promise<void> {
    try {
      this.#find = await fetchKeys(this.#url);
      this.#fetchedAtMs = Date.now();
      this.#failures = 0;
      this.#fetched(null);
    } catch (error) {
      this.#problem = messageOf(error);
      const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures, 10));
      this.#failures += 1;
      this.#nextTryAtMs = Date.now() + pauseMs;
      this.#fetched(this.#problem);
    }
  }
}

/** Fetches the keys. Fails if the set contains no key. */
async function fetchKeys(url: URL): Promise<FindKey> {
  const answer = await fetch(url, {
    headers: { accept: 'application/json, application/jwk-set+json' },
    redirect: 'manual',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (answer.status !== 200) {
    await answer.body?.cancel();
    throw new Error(`it answered with status ${answer.status}`);
  }
  const set = JSON.parse(await readText(answer)) as JSONWebKeySet;
  // Fails if `set` is not a key set.
  const find = createLocalJWKSet(set);
  if (set.keys.length === 0) throw new Error('it has no keys');
  return find;
}

async function readText(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body ?? []) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > MAX_SET_BYTES) throw new Error(`its answer is larger than ${MAX_SET_BYTES} bytes`);
  }
  return Buffer.concat(chunks).toString();
}
