import { closeSync, openSync, writeSync } from 'node:fs';

export interface Typed {
  readonly command: string;
  /** Lines that the command printed in its own terminal. */
  readonly lines: string[];
  /** Exit code; null while the command runs. */
  code: number | null;
  /** Start of the command in seconds since the start of the walk. */
  readonly atS: number;
}

/** Prefix of the hidden messages of a walk's script: `@` starts a command, `=` an exit code. */
export const MARK = '\x1e';
/** Text in the answer to the first call of README.md. */
export const ANSWER = 'Hello, Ada!';
/** Prefix of a line that names residue of a walk. */
const LEFT = 'left: ';
/** Prefix of the lines of the other terminal. */
export const OTHER_TERMINAL = '2│ ';
/** Escape character, joined at run time since Biome forbids control characters in regular expressions. */
const ESC = String.fromCharCode(27);
/**
 * Sequences that control a terminal: colours, titles, character sets, the cursor, and single control
 * characters.
 */
const SEQUENCES = [
  String.raw`${ESC}\[[0-9;?]*[ -/]*[@-~]`,
  String.raw`${ESC}\][^\x07]*(?:\x07|${ESC}\\)`,
  `${ESC}[()][A-Z0-9]`,
  `${ESC}[=>78]`,
  String.raw`[\x00-\x08\x0b\x0c\x0e-\x1d\x1f]`,
].join('|');
const CONTROL = new RegExp(`^(?:${SEQUENCES})$`);
const PIECES = new RegExp(`${SEQUENCES}|.`, 'gsu');
const HOME = new RegExp(`^${ESC}\\[1?G$`);
const ERASE_ALL = new RegExp(`^${ESC}\\[2K$`);
const ERASE_REST = new RegExp(`^${ESC}\\[0?[KJ]$`);

/**
 * Prints and records the lines of a walk, as an idle terminal shows them, with the seconds since its start.
 */
export class Transcript {
  readonly typed: Typed[] = [];
  lineCount = 0;
  /** Seconds until the first answer was shown; null before. */
  firstAnswerS: number | null = null;
  /** Seconds until the end of the last command; null before. */
  endS: number | null = null;
  /** Residue that the script found; these lines are not shown. */
  readonly left: string[] = [];
  #file: number | null;
  #beganMs: number | null = null;
  #rest = '';
  /** Number of pending empty lines, the last of which may belong to a mark. */
  #empty = 0;

  constructor(path: string | null) {
    this.#file = path === null ? null : openSync(path, 'w');
  }

  /** Adds terminal output in pieces of any size. */
  add(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#addLine(line);
  }

  /** Returns the seconds since the walk began; 0 before. */
  get seconds(): number {
    return this.#beganMs === null ? 0 : (performance.now() - this.#beganMs) / 1000;
  }

  close(): void {
    if (this.#rest !== '') this.#addLine(this.#rest);
    this.#rest = '';
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #addLine(raw: string): void {
    // A spinner shares its line with the next output of the other terminal.
    const line = shown(raw.slice(Math.max(0, raw.indexOf(OTHER_TERMINAL))));
    if (line === '') {
      this.#empty += 1;
      return;
    }
    const isMark = line.startsWith(MARK);
    // Each mark follows its own line feed.
    for (let count = isMark ? this.#empty - 1 : this.#empty; count > 0; count -= 1) this.#show('');
    this.#empty = 0;
    if (isMark) this.#obey(line.slice(MARK.length));
    else this.#show(line);
  }

  #obey(mark: string): void {
    const last = this.typed.at(-1);
    if (mark.startsWith('@')) {
      this.#beganMs ??= performance.now();
      this.typed.push({ command: mark.slice(1), lines: [], code: null, atS: this.seconds });
      this.#print(`$ ${mark.slice(1)}`);
    } else if (mark.startsWith('=') && last !== undefined) {
      last.code = Number(mark.slice(1));
      this.endS = this.seconds;
      if (last.code !== 0) this.#print(`(exit code ${last.code})`);
    }
  }

  #show(line: string): void {
    if (line.startsWith(LEFT)) {
      this.left.push(line);
      return;
    }
    if (line === '' && this.#beganMs === null) return;
    if (this.#beganMs !== null) this.lineCount += 1;
    if (line.includes(ANSWER)) this.firstAnswerS ??= this.seconds;
    if (!line.startsWith(OTHER_TERMINAL)) this.typed.at(-1)?.lines.push(line);
    this.#print(line);
  }

  #print(line: string): void {
    const text = `${this.seconds.toFixed(1).padStart(6)}  ${line}`;
    console.log(text);
    if (this.#file !== null) writeSync(this.#file, `${text}\n`);
  }
}

/** Returns the final text of a line, without parts that later output has overwritten or erased. */
function shown(raw: string): string {
  const prefix = raw.startsWith(OTHER_TERMINAL) ? OTHER_TERMINAL : '';
  let cells: string[] = [];
  let column = 0;
  for (const [piece] of raw.slice(prefix.length).matchAll(PIECES)) {
    if (piece === '\r' || HOME.test(piece)) column = 0;
    else if (ERASE_ALL.test(piece)) cells = [];
    else if (ERASE_REST.test(piece)) cells = cells.slice(0, column);
    else if (!CONTROL.test(piece)) cells[column++] = piece;
  }
  return `${prefix}${Array.from(cells, cell => cell ?? ' ').join('')}`.trimEnd();
}
