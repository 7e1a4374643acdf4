/** Lines of a log, as the page shows them. The output of a sandbox is untrusted and of any length. */

const MAX_LINES = 5000;
/** Maximum of all lines together. The layout of a longer text takes the browser many seconds. */
const MAX_CHARS = 2 * 1024 * 1024;
/** Maximum of a line. The rest of a longer line is shown as further lines. */
const MAX_LINE_CHARS = 16 * 1024;
/**
 * Control sequences of terminals. No alternative matches beyond the next ESC, which keeps the search linear
 * and the text between two links.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are removed
const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001a]/g;

/** Keeps the newest lines of the added text. */
export class LogLines {
  #lines: string[] = [];
  #chars = 0;
  /** The last line, which is incomplete. */
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
