import { readFile } from 'node:fs/promises';
import { fileProblem } from '../../../clients/typescript/src/file-problem.ts';
import { CliError, usageError } from './exit.ts';
import type { Io, Terminal } from './io.ts';

/** More than any request may carry. The service enforces its own, lower limits. */
const MAX_BYTES = 64 * 1024 * 1024;

/**
 * Reads a file as text. Fails with a usage error when the file cannot be read, or is not text. `next` is the
 * advice for a file that does not exist.
 */
export async function readTextFile(file: string, next = ''): Promise<string> {
  const bytes = await readFile(file).catch((error: Error) => {
    throw usageError(
      `The file ${file} cannot be read: ${fileProblem(error)}.${(error as NodeJS.ErrnoException).code === 'ENOENT' ? next : ''}`,
    );
  });
  return textOf(bytes, `The file ${file}`);
}

/** Decodes UTF-8. Fails for other bytes, which a lenient decoder would replace silently. */
function textOf(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw usageError(`${what} is not UTF-8 text.`);
  }
}

/** Reads all of stdin as text. */
export async function readStdin(io: Io): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of io.stdin as AsyncIterable<Buffer | string>) {
    const buffer = Buffer.from(chunk);
    bytes += buffer.length;
    if (bytes > MAX_BYTES)
      throw usageError(`stdin has more than ${MAX_BYTES / 1024 / 1024} MiB, which no request may carry.`);
    chunks.push(buffer);
  }
  return textOf(Buffer.concat(chunks), 'stdin');
}

/**
 * Reads the value of `--data`: the text itself, `@file`, or `-` for stdin. Checks that it is JSON, and
 * returns the unchanged text.
 */
export async function readJsonArgument(io: Io, given: string): Promise<string> {
  const text = await readArgument(io, given);
  try {
    JSON.parse(text);
  } catch (error) {
    throw usageError(`The data is not JSON (${(error as Error).message}). A text needs its own quotes: '"text"'.`);
  }
  return text;
}

async function readArgument(io: Io, given: string): Promise<string> {
  if (given === '-' || given === '@-') return readStdin(io);
  if (!given.startsWith('@')) return given;
  return readTextFile(given.slice(1));
}

/** Returns the value of a YAML or JSON file; `-` is stdin. `next` is the advice for a missing file. */
export async function readRequestFile(io: Io, file: string, next = ''): Promise<unknown> {
  const content = file === '-' ? await readStdin(io) : await readTextFile(file, next);
  const { parse } = await import('yaml');
  try {
    return parse(content);
  } catch (error) {
    throw usageError(`${file} is neither YAML nor JSON: ${(error as Error).message}`);
  }
}

/** Reports every problem of a request at once, a line for each. `where` is the file, or `The request`. */
export function refuseProblems(where: string, problems: readonly string[]): never {
  const count = problems.length === 1 ? 'a problem' : `${problems.length} problems`;
  throw usageError([`${where} has ${count}:`, ...problems.map(problem => `  - ${problem}`)].join('\n'));
}

/** Reads a line from the terminal without showing the typed text. */
export async function readHidden(io: Io, terminal: Terminal, question: string): Promise<string> {
  io.err.write(question);
  terminal.setRaw(true);
  let typed = '';
  try {
    for await (const chunk of io.stdin as AsyncIterable<Buffer | string>) {
      for (const key of chunk.toString()) {
        if (key === '\r' || key === '\n' || key === '\x04') return typed;
        if (key === '\x03') throw new CliError('Interrupted.');
        typed = key === '\x7f' || key === '\b' ? typed.slice(0, -1) : typed + key;
      }
    }
    return typed;
  } finally {
    terminal.setRaw(false);
    io.err.write('\n');
  }
}
