import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { JsonObject } from '../../core/json.ts';
import { findPythonDir } from '../../lib/own-paths.ts';
import { usageError } from '../shared/exit.ts';
import { codeDirectory } from './upload.ts';

/** The word that takes the place of a schema and asks for the one that the type hints of the handler give. */
export const HINTS = 'hints';

/** Longer than the import of large packages on a busy machine. */
const TIMEOUT_MS = 120_000;
/** More than user code prints while it is imported. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

/** The fields of a function that say where its handler is. `code` is a directory of this machine. */
export interface HintedFunction {
  readonly code: string | undefined;
  readonly handler: string | undefined;
  readonly runtime: string | undefined;
}

/**
 * Returns the JSON Schema of the event, made from the type hints of the handler. Imports the code with the
 * python3 of this machine. Fails with a usage error that begins with `flag`.
 */
export async function schemaOfHints(flag: string, { code, handler, runtime }: HintedFunction): Promise<JsonObject> {
  const refuse = (text: string) => usageError(`${flag} ${HINTS}: ${text}`);
  if (runtime !== undefined && !/^(python\d|lambda$)/.test(runtime)) {
    throw refuse(
      `only handlers in Python have type hints that can be read, and the runtime is ${runtime}. Write the JSON Schema.`,
    );
  }
  if (!handler) throw refuse('needs the handler of the function, as module.function.');
  if (code === undefined) throw refuse('needs the directory of the code on this machine: name it with --code.');
  const directory = await codeDirectory(code);
  const answer = await describe(directory, handler);
  if (answer.schema !== undefined) return answer.schema;
  throw refuse(`${handler} in ${directory}: ${answer.problem}.`);
}

interface Answer {
  readonly schema?: JsonObject;
  readonly problem?: string;
}

async function describe(directory: string, handler: string): Promise<Answer> {
  const program = join(findPythonDir(), 'rookery_build', 'input_schema.py');
  const options = {
    cwd: directory,
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
    maxBuffer: MAX_OUTPUT_BYTES,
  } as const;
  try {
    // -B: leaves no compiled files in the code.
    const { stdout } = await promisify(execFile)('python3', ['-B', program, directory, handler], options);
    return JSON.parse(stdout) as Answer;
  } catch (error) {
    const { code, killed, stderr } = error as { code?: unknown; killed?: boolean; stderr?: string };
    if (code === 'ENOENT') return { problem: 'this machine has no python3, which has to import it' };
    if (killed === true) return { problem: `python3 did not import it within ${TIMEOUT_MS / 1000} s` };
    const last = (stderr ?? '').trim().split('\n').at(-1) ?? '';
    return { problem: `python3 failed while it imported it${last === '' ? '' : `: ${last}`}` };
  }
}
