import { usageError } from './exit.ts';
import { readStdin, readTextFile } from './input.ts';
import type { Io } from './io.ts';

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
