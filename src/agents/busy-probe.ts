import { type IncomingMessage, request } from 'node:http';
import type { Duplex } from 'node:stream';
import { type HttpProfileName, httpProfileOf } from '../core/http-profiles.ts';
import type { SandboxAccess } from '../sandbox/access.ts';

/** Time after which a server without an answer counts as not busy. */
const PROBE_TIMEOUT_MS = 5_000;
const BUSY = 'HealthyBusy';
/** Longest answer that is read. */
const MAX_ANSWER_CHARS = 64 * 1024;

/**
 * Returns true if the server of a sandbox says on its probe that it works without a call.
 * Only some profiles have such an answer. A server that does not answer is not busy. Never rejects.
 */
export async function isServerBusy(
  open: () => SandboxAccess | undefined,
  profile: HttpProfileName | undefined,
): Promise<boolean> {
  const { port, probe, tellsBusy } = httpProfileOf(profile);
  if (!tellsBusy || probe === null) return false;
  let connection: Duplex | undefined;
  try {
    const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
    connection = await open()?.dial(port, signal);
    if (connection === undefined) return false;
    const answer: unknown = JSON.parse(await get(connection, probe, signal));
    return typeof answer === 'object' && answer !== null && 'status' in answer && answer.status === BUSY;
  } catch {
    return false;
  } finally {
    connection?.destroy();
  }
}

async function get(connection: Duplex, path: string, signal: AbortSignal): Promise<string> {
  connection.on('error', () => undefined);
  const headers = { host: '127.0.0.1', connection: 'close' };
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = request({ path, headers, signal, createConnection: () => connection });
    // The connection may be paused, and Node's HTTP client does not resume it.
    sent.once('socket', () => connection.resume());
    sent.once('response', resolve);
    sent.on('error', reject);
    sent.end();
  });
  let body = '';
  for await (const piece of answer.setEncoding('utf8')) {
    body += piece;
    if (body.length > MAX_ANSWER_CHARS) throw new Error('the answer is too long');
  }
  return body;
}
