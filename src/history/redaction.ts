/** Text that replaces a hidden value. */
export const REDACTED = '[redacted]';

const MAX_KNOWN_NAMES = 10_000;
const SPACES = /\s*/y;
const BARE_VALUE = /[^\s,}\]]*/y;

/**
 * Hides values of JSON by the names of their fields. Works on the text, which may end anywhere: a call keeps
 * only the beginning of a large input. The rest of the text stays as it is.
 */
export class Redaction {
  /** The rules without separators: `apikey`. */
  readonly #joined: readonly string[];
  /** Matches texts that may have a field to hide. */
  readonly #hint: RegExp;
  readonly #assigned: RegExp;
  readonly #known = new Map<string, boolean>();

  /** `names`: field names in lower case, with `_` between words. */
  constructor(names: readonly string[]) {
    this.#joined = names.map(name => name.toLowerCase().replace(/[^a-z]/g, '')).filter(name => name !== '');
    const anywhere = this.#joined.map(name => [...name].join('[^a-z"]{0,2}')).join('|');
    this.#hint = new RegExp(anywhere === '' ? '(?!)' : anywhere, 'i');
    const assigned = `((?:${anywhere === '' ? '(?!)' : anywhere})["']?\\s*[=:]\\s*)(?:(?:Bearer|Basic)\\s+)?("[^"]*"?|'[^']*'?|[^\\s,;&]+)`;
    this.#assigned = new RegExp(assigned, 'gi');
  }

  /** Returns true if the values of fields with this name are hidden. */
  hides(name: string): boolean {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const words = name
      .replace(/([a-z])([A-Z])/g, '$1_$2')
      .toLowerCase()
      .split(/[^a-z]+/);
    const isHidden = this.#joined.some(rule => hasRule(words, rule));
    // Clients choose the names, so the cache has a limit.
    if (this.#known.size >= MAX_KNOWN_NAMES) this.#known.clear();
    this.#known.set(name, isHidden);
    return isHidden;
  }

  /** Returns JSON, whole or cut, with hidden values replaced. */
  json(text: string): string {
    // A name may be written with escapes.
    if (!this.#hint.test(text) && !text.includes('\\u')) return text;
    let shown = '';
    let from = 0;
    for (let at = text.indexOf('"'); at >= 0 && at < text.length; at = text.indexOf('"', at)) {
      const end = endOfString(text, at);
      const colon = skip(SPACES, text, end);
      if (text[colon] !== ':' || !this.hides(nameOf(text.slice(at, end)))) {
        at = end;
        continue;
      }
      const value = skip(SPACES, text, colon + 1);
      shown += `${text.slice(from, value)}"${REDACTED}"`;
      from = endOfValue(text, value);
      at = from;
    }
    return shown + text.slice(from);
  }

  /** Returns any text with hidden values replaced behind `name=` and `name:`. */
  text(text: string): string {
    return this.#hint.test(text) ? text.replace(this.#assigned, `$1${REDACTED}`) : text;
  }
}

/** Returns true if the words contain the rule: `api_key` in `openai_api_key`, `apikey` and `OpenAIApiKey`. */
function hasRule(words: readonly string[], rule: string): boolean {
  for (let first = 0; first < words.length; first++) {
    let joined = '';
    for (let at = first; at < words.length && joined.length < rule.length; at++) joined += words[at];
    if (joined === rule || (words[first] as string).endsWith(rule)) return true;
  }
  return false;
}

function nameOf(quoted: string): string {
  const name = quoted.slice(1, -1);
  if (!name.includes('\\')) return name;
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return name;
  }
}

function skip(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  pattern.test(text);
  return Math.max(from, pattern.lastIndex);
}

/** Returns the position after the string that begins at `from`, or the end of the text. */
function endOfString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const char = text[at];
    if (char === '\\') at += 1;
    else if (char === '"') return at + 1;
  }
  return text.length;
}

/** Returns the position after the value that begins at `from`, or the end of the text. */
function endOfValue(text: string, from: number): number {
  const first = text[from];
  if (first === '"') return endOfString(text, from);
  if (first !== '{' && first !== '[') return skip(BARE_VALUE, text, from);
  let depth = 0;
  for (let at = from; at < text.length; ) {
    const char = text[at];
    if (char === '"') {
      at = endOfString(text, at);
      continue;
    }
    at += 1;
    if (char === '{' || char === '[') depth += 1;
    else if (char === '}' || char === ']') {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  return text.length;
}
