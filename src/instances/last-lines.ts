import { loggable } from '../core/error.ts';
import { withDeadline } from '../lib/deadline.ts';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../sandbox/driver.ts';

const LINES = 10;
const READ_MS = 2_000;
/** Least length of a masked value: shorter values occur by chance in other text. */
const LEAST_HIDDEN_CHARS = 4;

/**
 * Returns a text to append to `reason`, which says why a sandbox did not serve. The text has the last lines
 * of the output, without values of secrets and without lines that `reason` contains. `''`: no such lines.
 */
export async function lastLines(
  driver: SandboxDriver,
  handle: SandboxHandle,
  spec: SandboxSpec,
  reason: string,
): Promise<string> {
  const read = withDeadline(READ_MS, async signal => {
    const chunks: Buffer[] = [];
    const request = { tail: LINES, sinceMs: null, follow: false };
    for await (const chunk of driver.logs(handle, request, signal)) chunks.push(Buffer.from(chunk));
    const lines = Buffer.concat(chunks).toString('utf8').split('\n');
    return lines.filter(line => line.trim() !== '' && !reason.includes(line.trim())).join('\n');
  });
  const said = await read.catch(() => '');
  return said === '' ? '' : `; it printed last: ${loggable(withoutSecrets(said, spec).replaceAll('\n', ' | '))}`;
}

function withoutSecrets(text: string, { env, secretVariables = [] }: SandboxSpec): string {
  return secretVariables
    .map(name => env[name] ?? '')
    .filter(value => value.length >= LEAST_HIDDEN_CHARS)
    .flatMap(value => [value, ...value.split('\n').filter(line => line.length >= LEAST_HIDDEN_CHARS)])
    .reduce((shown, value) => shown.replaceAll(value, '***'), text);
}
