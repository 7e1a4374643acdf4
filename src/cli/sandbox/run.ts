import { readLines } from '../../../clients/typescript/src/lines.ts';
import { resolveAgent } from '../agent/records.ts';
import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { EXIT, usageError } from '../shared/exit.ts';
import { readStdin, readTextFile } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { withSpinner } from '../shared/print.ts';
import { sandboxBody } from './records.ts';

interface RunOptions extends ClientOptions {
  readonly file?: string;
  readonly language?: string;
  readonly env?: readonly string[];
  readonly in?: string;
  readonly namespace: string;
  readonly json?: boolean;
}

/** A line of the interpreter. */
interface Line {
  readonly type: string;
  readonly text?: string;
  readonly is_main_result?: boolean;
  readonly name?: string;
  readonly value?: string;
  readonly traceback?: string;
}

const TEMPLATE = 'code-interpreter-v1';
/** End of a sandbox that the command could not kill, because it was killed itself. */
const TTL = '1h';

/** Runs code and prints what it gives. Returns the exit code: 1 if the code ended with an error. */
export async function runCode(io: Io, given: string | undefined, options: RunOptions): Promise<number> {
  const code = await codeOf(io, given, options.file);
  const body = JSON.stringify({
    ...{ code, env_vars: parsePairs(options.env ?? [], '--env') },
    ...(options.language !== undefined && { language: options.language }),
  });
  const client = await Client.open(options, io);
  if (options.in !== undefined) {
    const id = await resolveAgent(client, options.in, options.namespace);
    return await printRun(io, client, id, body, options);
  }
  const wanted = sandboxBody(undefined, { template: TEMPLATE, namespace: options.namespace, ttl: TTL });
  const { instance_id } = await withSpinner(io, 'creating the sandbox', () =>
    client.json('POST', '/api/agent', { body: JSON.stringify(wanted), timeoutMs: null }),
  );
  try {
    return await printRun(io, client, String(instance_id), body, options);
  } finally {
    // A new client, because an abort of the command ends the requests of the first one.
    const ending = await Client.open(options, { ...io, signal: new AbortController().signal });
    await ending.json('DELETE', `/api/agent/${String(instance_id)}?grace=0`, { timeoutMs: null });
  }
}

async function codeOf(io: Io, given: string | undefined, file: string | undefined): Promise<string> {
  if ((given === undefined) === (file === undefined)) {
    throw usageError("Give either the code or --file, for example: rookery run 'print(1)'.");
  }
  if (file !== undefined) return await readTextFile(file);
  return given === '-' ? await readStdin(io) : (given as string);
}

async function printRun(io: Io, client: Client, id: string, body: string, { json }: RunOptions): Promise<number> {
  const path = `/api/agent/${encodeURIComponent(id)}/code`;
  const lines = await client.stream('POST', path, { body, timeoutMs: null });
  let exitCode: number = EXIT.failure;
  let hasFailed = false;
  for await (const text of readLines(lines)) {
    const line = JSON.parse(text) as Line;
    if (line.type === 'error') hasFailed = true;
    if (line.type === 'end_of_execution') exitCode = hasFailed ? EXIT.failure : EXIT.ok;
    if (json === true) io.out.write(`${text}\n`);
    else printLine(io, line);
  }
  return exitCode;
}

function printLine(io: Io, line: Line): void {
  if (line.type === 'stdout') io.out.write(line.text ?? '');
  else if (line.type === 'stderr') io.err.write(line.text ?? '');
  else if (line.type === 'result' && line.text !== undefined) io.out.write(`${line.text}\n`);
  else if (line.type === 'error') io.err.write(`${line.traceback || `${line.name}: ${line.value}`}\n`);
}
