import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import { deadlineExceeded, ServiceError, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { pause } from '../../lib/backoff.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { dialDelaysOf, INTERPRETER } from '../../templates/templates.ts';
import { BoundedText } from './bounded-text.ts';
import type { Content, ToolResult } from './tool.ts';

/** A cell for the interpreter. */
export interface Cell {
  readonly code: string;
  readonly language?: string;
}

/** A line of the interpreter's answer. */
interface Line {
  readonly type: string;
  readonly text?: string;
  readonly png?: string;
  readonly name?: string;
  readonly value?: string;
  readonly traceback?: string;
}

/** The output of a cell. */
interface Shown {
  readonly stdout: BoundedText;
  readonly stderr: BoundedText;
  readonly results: string[];
  readonly images: Content[];
  error: Line | null;
}

/**
 * Runs a cell in the interpreter of a sandbox and returns what it printed and showed. A cell that raises is a
 * result with `isError`. Fails with `deadline_exceeded` after `timeoutMs`; the cell is interrupted then.
 */
export async function runCell(
  access: SandboxAccess,
  cell: Cell,
  timeoutMs: number,
  caller: AbortSignal,
): Promise<ToolResult> {
  const late = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([caller, late]);
  try {
    const connection = await dial(access, signal);
    try {
      return resultOf(await execute(connection, cell, signal));
    } finally {
      connection.destroy();
    }
  } catch (error) {
    if (late.aborted) throw deadlineExceeded(`The cell was interrupted: it did not end within ${timeoutMs / 1000} s.`);
    throw error instanceof ServiceError ? error : unavailable('the code interpreter was interrupted', { cause: error });
  }
}

/** Connects to the interpreter, which may still be starting. */
async function dial(access: SandboxAccess, signal: AbortSignal): Promise<Duplex> {
  const { template, port } = INTERPRETER;
  for (const delayMs of dialDelaysOf(template, port)) {
    try {
      return await access.dial(port, signal);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'unavailable') throw error;
      await pause(delayMs, signal);
    }
  }
  return await access.dial(port, signal);
}

async function execute(connection: Duplex, cell: Cell, signal: AbortSignal): Promise<Shown> {
  connection.on('error', () => undefined);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = request(
      {
        method: 'POST',
        path: '/execute',
        host: 'localhost',
        headers: { 'Content-Type': 'application/json' },
        createConnection: () => connection as Socket,
        signal,
      },
      resolve,
    );
    // The connection may be paused, and Node's HTTP client does not resume it.
    asked.once('socket', () => connection.resume());
    asked.on('error', reject);
    asked.end(JSON.stringify(cell));
  });
  const shown: Shown = {
    stdout: new BoundedText(LIMITS.mcpOutputBytes),
    stderr: new BoundedText(LIMITS.mcpOutputBytes),
    results: [],
    images: [],
    error: null,
  };
  let bytes = 0;
  for await (const text of createInterface({ input: answer })) {
    bytes += text.length;
    if (bytes > LIMITS.mcpFileBytes) throw unavailable(`the cell showed more than ${LIMITS.mcpFileBytes} bytes`);
    if (text !== '') note(JSON.parse(text) as Line, shown);
  }
  if (answer.statusCode !== 200) throw unavailable(`the code interpreter answered ${answer.statusCode}`);
  return shown;
}

function note(line: Line, shown: Shown): void {
  if (line.type === 'stdout') shown.stdout.add(Buffer.from(line.text ?? ''));
  else if (line.type === 'stderr') shown.stderr.add(Buffer.from(line.text ?? ''));
  else if (line.type === 'error') shown.error = line;
  if (line.type !== 'result') return;
  if (line.text !== undefined) shown.results.push(line.text);
  if (line.png !== undefined) shown.images.push({ type: 'image', data: line.png, mimeType: 'image/png' });
}

function resultOf({ stdout, stderr, results, images, error }: Shown): ToolResult {
  const failure = error && { name: error.name ?? '', value: error.value ?? '', traceback: error.traceback ?? '' };
  const structured = {
    ...{ stdout: stdout.text, stderr: stderr.text, results, error: failure },
    ...((stdout.isCut || stderr.isCut) && { truncated: true }),
  };
  return {
    content: [{ type: 'text', text: JSON.stringify(structured) }, ...images],
    structuredContent: structured,
    ...(failure !== null && { isError: true }),
  };
}
