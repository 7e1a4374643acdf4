/** Lines of a log as the page shows them: what a sandbox prints is input, of any length and with whatever it likes in it. */

const MAX_LINES = 5000;
/** Of all lines together: what is longer, the browser lays out for many seconds. */
const MAX_CHARS = 2 * 1024 * 1024;
/** What is longer goes on in the next line. */
const MAX_LINE_CHARS = 16 * 1024;
/**
 * Orders for a terminal. No piece passes the next ESC: from each of many beginnings it would look through all others, and of two links the text
 * between them would be taken for one.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is taken out
const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001a]/g;

/** The newest lines of what was added. */
export class LogLines {
  #lines: string[] = [];
  #chars = 0;
  /** The last line, which has no end yet. */
  #rest = '';

  add(text: string): void {
    const parts = (this.#rest + text).split('\n');
    this.#rest = parts.pop() ?? '';
    for (const part of parts) this.#push(part);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.#push(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
    let dropped = 0;
    while (this.#chars > MAX_CHARS || this.#lines.length - dropped > MAX_LINES) {
      this.#chars -= this.#lines[dropped]?.length ?? 0;
      dropped += 1;
    }
    if (dropped > 0) this.#lines = this.#lines.slice(dropped);
  }

  get all(): readonly string[] {
    return this.#rest === '' ? [...this.#lines] : [...this.#lines, this.#rest.replace(ESCAPES, '')];
  }

  #push(line: string): void {
    for (let at = 0; at === 0 || at < line.length; at += MAX_LINE_CHARS) {
      const plain = line.slice(at, at + MAX_LINE_CHARS).replace(ESCAPES, '');
      this.#lines.push(plain);
      this.#chars += plain.length;
    }
  }
}
