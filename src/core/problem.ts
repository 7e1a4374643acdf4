/**
 * Notes what is wrong with one field; `path` is the whole path (`rootfs.imageurl`), `''` when `text` is a sentence of its own.
 * One that fails at once is `isStepwise`: what comes first then counts, so kinds look at the form of a whole value before its parts.
 */
export interface Problem {
  (path: string, text: string): void;
  readonly isStepwise?: boolean;
}

export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  /** Every problem of the body, as sentences. */
  | { readonly ok: false; readonly problems: readonly string[] };

/** Problems in the order in which they were found, as sentences; the first of each field counts. */
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

  /** `value` when nothing was wrong. */
  check<T>(value: T): Checked<T> {
    return this.any ? { ok: false, problems: this.found } : { ok: true, value };
  }

  toString(): string {
    return this.found.join('; ');
  }
}

/** An answer stays readable: of a map of 10 000 wrong values it names the first ones. */
const MAX_PROBLEMS = 32;

/** How much of a wrong value, or of a name that a caller chose, an error repeats. */
export const MAX_QUOTED_CHARS = 80;

export function quote(value: unknown): string {
  if (isTooDeep(value)) return Array.isArray(value) ? '[…]' : '{…}';
  const text = JSON.stringify(value) ?? String(value);
  return text.length <= MAX_QUOTED_CHARS ? text : `${text.slice(0, MAX_QUOTED_CHARS)}…`;
}

/** How deep a value of any shape may go: writing one costs stack, level by level. */
export const MAX_LEVELS = 100;

/** Looks no deeper than it has to. */
export function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some(item => isTooDeep(item, levels - 1));
}
