import { ansi, type Style } from '../../lib/ansi.ts';
import type { Io, Output } from './io.ts';

/** Colours a text only on a terminal, and not if `NO_COLOR` is set. */
export function coloured(io: Io, output: Output, style: Style, text: string): string {
  return output.isTerminal && !io.environment.NO_COLOR ? ansi(style, text) : text;
}

/** Prints a warning of a successful command to stderr, so that stdout has only results. */
export function printWarning(io: Io, warning: string): void {
  // A spinner may occupy the line.
  const clear = io.err.isTerminal ? '\r\x1b[K' : '';
  io.err.write(`${clear}${coloured(io, io.err, 'yellow', 'warning:')} ${printable(warning)}\n`);
}

/**
 * Prints warnings, with a single line for all isolation layers that this machine lacks. Each answer about a
 * sandbox names those layers.
 */
export function printWarnings(io: Io, warnings: readonly string[]): void {
  const others = warnings.filter(warning => !OF_LAYERS.test(warning));
  for (const warning of others) printWarning(io, warning);
  if (others.length < warnings.length) printWarning(io, 'less isolated here: rookery doctor');
}

/** Warnings that `rookery doctor` explains. */
const OF_LAYERS = /^(?:\S+ is not available here \(|the server is not root: whatever user )/;

/** Prints an error for a person to stderr. */
export function printError(io: Io, message: string, style: Style | null = null): void {
  const text = printable(message);
  io.err.write(`${style === null ? text : coloured(io, io.err, style, text)}\n`);
}

/** Returns the sequence that empties a terminal and moves the cursor to its top. */
export function clearScreen(): string {
  return '\x1b[H\x1b[2J\x1b[3J';
}

export function printJson(io: Io, value: unknown): void {
  io.out.write(`${JSON.stringify(value, null, io.out.isTerminal ? 2 : undefined)}\n`);
}

/** Indents a foreign JSON text for a person, unless parsing it could change its numbers. */
export function prettyJson(json: string, isForPerson: boolean): string {
  const hasExactNumbersOnly = !/\d{16}/.test(json);
  return isForPerson && hasExactNumbersOnly ? JSON.stringify(JSON.parse(json), null, 2) : json;
}

export interface Column<Row> {
  readonly title: string;
  readonly text: (row: Row) => string;
  /** True if the column becomes narrower on a narrow terminal. */
  readonly isFlexible?: boolean;
  /** Order of narrowing among flexible columns. Columns that identify a record are narrowed `last`. */
  readonly gives?: 'first' | 'last';
  readonly style?: (row: Row) => Style | null;
}

const GAP = '  ';
const MIN_FLEXIBLE_COLUMNS = 8;

/** Prints a table with one line per record. Cuts lines only to fit a terminal. */
export function printTable<Row>(io: Io, columns: readonly Column<Row>[], rows: readonly Row[]): void {
  const cells = rows.map(row => columns.map(column => oneLine(column.text(row))));
  const widths = columns.map((column, at) =>
    Math.max(column.title.length, ...cells.map(line => widthOf(line[at] ?? ''))),
  );
  if (io.out.isTerminal) narrow(columns, widths, io.out.columns);
  const line = (texts: readonly string[], paint: (text: string, at: number) => string): string =>
    texts
      .map((text, at) => {
        const fitted = shorten(text, widths[at] ?? 0);
        const pad = at === texts.length - 1 ? '' : ' '.repeat(Math.max(0, (widths[at] ?? 0) - widthOf(fitted)));
        return paint(fitted, at) + pad;
      })
      .join(GAP);
  const titles = columns.map(column => column.title);
  io.out.write(`${line(titles, text => coloured(io, io.out, 'bold', text))}\n`);
  rows.forEach((row, index) => {
    const paint = (text: string, at: number): string => {
      const style = columns[at]?.style?.(row) ?? null;
      return style === null ? text : coloured(io, io.out, style, text);
    };
    io.out.write(`${line(cells[index] ?? [], paint)}\n`);
  });
}

/** Prints one record with a line per field. Omits fields without a value. */
export function printFields(
  io: Io,
  fields: readonly (readonly [name: string, value: string | number | undefined])[],
): void {
  const there = fields.filter(([, value]) => value !== undefined && value !== '');
  const width = Math.max(0, ...there.map(([name]) => name.length));
  for (const [name, value] of there) {
    io.out.write(`${coloured(io, io.out, 'bold', name.padEnd(width))}${GAP}${printable(String(value))}\n`);
  }
}

/** Shows progress on stderr while `work` runs, only on a terminal. */
export async function withSpinner<T>(io: Io, text: string, work: () => Promise<T>): Promise<T> {
  if (!io.err.isTerminal) return work();
  const { default: yoctoSpinner } = await import('yocto-spinner');
  const spinner = yoctoSpinner({ text }).start();
  try {
    return await work();
  } finally {
    spinner.stop();
  }
}

/** Narrows flexible columns in their order, and the widest of equal ones, until the line fits. */
function narrow(columns: readonly Column<never>[], widths: number[], available: number): void {
  const total = (): number => widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
  while (total() > available) {
    let widest = -1;
    columns.forEach((column, at) => {
      if (column.isFlexible !== true || (widths[at] ?? 0) <= MIN_FLEXIBLE_COLUMNS) return;
      const [turn, best] = [turnOf(column), turnOf(columns[widest])];
      if (widest === -1 || turn < best || (turn === best && (widths[at] ?? 0) > (widths[widest] ?? 0))) widest = at;
    });
    if (widest === -1) return;
    widths[widest] = Math.max(MIN_FLEXIBLE_COLUMNS, (widths[widest] ?? 0) - (total() - available));
  }
}

function turnOf(column: Column<never> | undefined): number {
  return column?.gives === 'first' ? 0 : column?.gives === 'last' ? 2 : 1;
}

function shorten(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let fitted = '';
  for (const character of text) {
    if (widthOf(fitted + character) > width - 1) break;
    fitted += character;
  }
  return `${fitted}…`;
}

/** Characters that take two columns of a terminal: East Asian scripts and emoji. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;

function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += WIDE.test(character) ? 2 : 1;
  return width;
}

function oneLine(text: string): string {
  return printable(text).replaceAll('\n', ' ');
}

/**
 * Characters that control a terminal, reorder the text around them, or are invisible. Joiners stay, because
 * scripts and emoji need them.
 */
const UNPRINTABLE = /(?!\t|\n|\u200c|\u200d|[\u0600-\u0605])[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Replaces characters of foreign texts that could control the terminal or imitate other texts. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '�');
}

/** Returns names as `a, b or c`. */
export function oneOf(names: readonly string[]): string {
  return new Intl.ListFormat('en-GB', { type: 'disjunction' }).format(names);
}
