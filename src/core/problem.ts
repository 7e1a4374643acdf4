/**
 * Notes a problem of a field; `path` is its whole path (`rootfs.imageurl`). If `path` is `''`, `text` is a
 * complete sentence. `isStepwise` marks a function that throws at the first problem. Order then matters, so
 * kinds check the form of a whole value before its parts.
 */
export interface Problem {
  (path: string, text: string): void;
  readonly isStepwise?: boolean;
}

export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  /** Every problem of the body, as sentences. */
  | { readonly ok: false; readonly problems: readonly string[] };

/** Problems as sentences, in the order of discovery. Only the first of each field counts. */
export class Problems {
  readonly found: string[] = [];
  readonly #paths = new Set<string>();
  readonly add: Problem = (path, text) => {
    if (this.found.length >= MAX_PROBLEMS || this.#paths.has(path)) return;
    if (path !== '') this.#paths.add(path);
    this.found.push(path === '' ? text : `${path} ${text}`);
  };

  get any(): boolean {
    return this.found.length > 0;
  }

  /** Returns `value` if no problem was found. */
  check<T>(value: T): Checked<T> {
    return this.any ? { ok: false, problems: this.found } : { ok: true, value };
  }

  toString(): string {
    return this.found.join('; ');
  }
}

/** Keeps an answer readable: a map of 10 000 wrong values yields only the first problems. */
const MAX_PROBLEMS = 32;

/** Length to which an error cuts a wrong value, or a name that a caller chose. */
export const MAX_QUOTED_CHARS = 80;

export function quote(value: unknown): string {
  if (isTooDeep(value)) return Array.isArray(value) ? '[…]' : '{…}';
  const text = JSON.stringify(value) ?? String(value);
  return text.length <= MAX_QUOTED_CHARS ? text : `${text.slice(0, MAX_QUOTED_CHARS)}…`;
}

/** Deepest nesting of a value of any shape. Serializing a value uses stack for each level. */
export const MAX_LEVELS = 100;

/** Returns true if a value is nested deeper than `levels`. Stops at that depth. */
export function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some(item => isTooDeep(item, levels - 1));
}
