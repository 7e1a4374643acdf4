import { LIMITS } from '../../core/limits.ts';

/** The expected form of `mode`, for error texts. */
export const MODE_TEXT = 'permission bits in octal, such as 644, 0755 or 1777';
export const MODE_PATTERN = '^(0o?)?[0-7]{1,4}$';
const MODE = new RegExp(MODE_PATTERN);

/** Parses permission bits. null: the default. Throws the error that `wrong` builds from an invalid text. */
export function readMode(text: string | undefined, wrong: (text: string) => Error): number | null {
  if (text === undefined || text === '') return null;
  if (!MODE.test(text)) throw wrong(text.slice(0, 40));
  return Number.parseInt(text.replace(/^0o/, ''), 8);
}

export function formatMode(mode: number): string {
  return `0${(mode & 0o7777).toString(8).padStart(3, '0')}`;
}

/** Returns the problem of a path inside a sandbox; undefined when there is none. */
export function pathProblem(path: string): string | undefined {
  if (path === '') return 'must not be empty';
  if (path.includes('\0')) return 'must not contain a NUL character';
  if (Buffer.byteLength(path) > LIMITS.filePathBytes) return `must have at most ${LIMITS.filePathBytes} bytes`;
  return undefined;
}
