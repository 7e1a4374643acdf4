import { REDACTED } from './redaction.ts';

/** Characters of the shortest value that is hidden. A shorter one would hide parts of ordinary words. */
export const MIN_HIDDEN_CHARS = 4;
const NON_ASCII = /[\u0080-\uffff]/g;

/** Hides the values of secrets in texts, whatever the names of their fields are. */
export class SecretValues {
  /** The values as texts and as parts of JSON, longest first: one value may contain another. */
  readonly #forms: readonly string[];

  constructor(values: Iterable<string>) {
    const forms = new Set<string>();
    for (const value of values) {
      if (value.length >= MIN_HIDDEN_CHARS) for (const form of formsOf(value)) forms.add(form);
    }
    this.#forms = [...forms].sort((a, b) => b.length - a.length);
  }

  /**
   * Returns the text with every value replaced. `isCut`: the text was cut at its end, where the beginning of
   * a value is replaced too.
   */
  hide(text: string, isCut: boolean): string {
    let shown = text;
    for (const form of this.#forms) if (shown.includes(form)) shown = shown.replaceAll(form, REDACTED);
    if (!isCut) return shown;
    const lengths = this.#forms.map(form => commonLength(shown, form));
    const longest = Math.max(0, ...lengths);
    return longest < MIN_HIDDEN_CHARS ? shown : `${shown.slice(0, -longest)}${REDACTED}`;
  }
}

/** Returns the value as it is, as JSON, as JSON of Python (ASCII only), and as JSON of Go (no HTML). */
function formsOf(value: string): readonly string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const ascii = json.replace(NON_ASCII, escaped);
  return [value, json, ascii, json.replace(/[<>&\u2028\u2029]/g, escaped)];
}

function escaped(char: string): string {
  return `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Returns the length of the longest end of `text` that is a beginning of `value`. */
function commonLength(text: string, value: string): number {
  for (let length = Math.min(text.length, value.length - 1); length >= MIN_HIDDEN_CHARS; length--) {
    if (text.endsWith(value.slice(0, length))) return length;
  }
  return 0;
}
