import { LIMITS } from '../../core/limits.ts';

/** What `mode` has to be, for sentences. */
export const MODE_TEXT = 'permission bits in octal, such as 644 or 0755';
export const MODE_PATTERN = '^(0o?)?[0-7]{1,3}$';
const MODE = new RegExp(MODE_PATTERN);

/** Permission bits; null: the default. Fails with what `wrong` makes of the text. */
export function readMode(text: string | undefined, wrong: (text: string) => Error): number | null {
  if (text === undefined || text === '') return null;
  if (!MODE.test(text)) throw wrong(text.slice(0, 40));
  return Number.parseInt(text.replace(/^0o/, ''), 8);
}

export function formatMode(mode: number): string {
  return `0${(mode & 0o7777).toString(8).padStart(3, '0')}`;
}

/** The problem of a path inside a sandbox; undefined when it has none. */
export function pathProblem(path: string): string | undefined {
  if (path === '') return 'must not be empty';
  if (path.includes('\0')) return 'must not contain a NUL character';
  if (Buffer.byteLength(path) > LIMITS.filePathBytes) return `must have at most ${LIMITS.filePathBytes} bytes`;
  return undefined;
}
