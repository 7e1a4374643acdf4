import { existsSync } from 'node:fs';
import { type IncomingHttpHeaders, type IncomingMessage, STATUS_CODES } from 'node:http';
import { isLoopback } from '../../config/contradictions.ts';
import { CliError, EXIT } from './exit.ts';

/** An HTTP entry of a service. */
export type Entry = 'frontend' | 'meta';

/** Returns the error of a request that did not reach the service, with the next step. */
export function unreachable(entry: Entry, base: URL, error: Error): CliError {
  if (error.name === 'AbortError') return new CliError('Interrupted.');
  const { code = '' } = error as NodeJS.ErrnoException;
  if (/CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)/.test(code)) {
    return new CliError(
      `The certificate of the ${nameOf(entry)} at ${base.origin} is not trusted: ${error.message}. Name the file of its CA with --ca-file or ROOKERY_CA_FILE.`,
      EXIT.unreachable,
    );
  }
  const flag = entry === 'frontend' ? '--address' : '--meta-address';
  const next = isLoopback(base.hostname)
    ? `Start the service with "rookery serve", or say where it is with ${flag}.`
    : `Check the network, and the address: ${flag}, else its variable, else the context.`;
  return new CliError(
    `The ${nameOf(entry)} at ${base.origin} cannot be reached: ${causeOf(code, base, error)}. ${next}`,
    EXIT.unreachable,
  );
}

function causeOf(code: string, base: URL, error: Error): string {
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return `no address is known for the host ${base.hostname}`;
  if (code === 'ETIMEDOUT') return 'the host did not answer in time';
  if (code === 'EHOSTUNREACH' || code === 'ENETUNREACH') return 'no network leads to the host';
  if (code === 'EPROTO') return 'it does not speak TLS (https://)';
  return error.message || code || 'unknown cause';
}

/**
 * Returns the error of a request without an answer. The service was reached and may have executed the
 * request.
 */
export function unanswered(entry: Entry, base: URL, method: string, error: Error): CliError {
  if (error.name === 'AbortError') return new CliError('Interrupted.');
  if ((error as NodeJS.ErrnoException).code?.startsWith('HPE_')) {
    const flag = entry === 'frontend' ? '--address' : '--meta-address';
    return new CliError(
      `${base.origin} is not an HTTP server, so it is not the ${nameOf(entry)} of a service. Give its address with ${flag}.`,
      EXIT.unreachable,
    );
  }
  const whatNow = method === 'GET' ? '' : ' The operation may have succeeded: check before you retry.';
  return new CliError(
    `The ${nameOf(entry)} at ${base.origin} gave no answer (${error.message}).${whatNow}`,
    EXIT.unreachable,
  );
}

function nameOf(entry: Entry): string {
  return entry === 'frontend' ? 'frontend' : 'meta_service';
}

/** Returns the advice of the service for the next step, if the answer has one. */
export function adviceOf({ headers }: IncomingMessage): string | undefined {
  const advice = headers['x-advice'];
  return typeof advice === 'string' ? advice : undefined;
}

/** Refusals of the sandbox towards its own user, which do not depend on the caller's token. */
const OF_SANDBOX = / cannot be (?:read|written|listed|made)(?: by the user of the sandbox)?: /;

/** Returns the error of an answer with a status other than 2xx. `login` is the next step after a 401. */
export function refusal(answer: IncomingMessage, body: string, login: string): CliError {
  const { statusCode: status = 0, headers } = answer;
  const advice = adviceOf(answer);
  const message = parseObject(body)?.message;
  const sentence = typeof message === 'string' && message !== '' ? message : unexpected(status, headers, body);
  if (status === 401) {
    return new CliError(`${sentence}. ${login}`, EXIT.refused, status);
  }
  const next = advice ?? adviceFor(sentence);
  const text = next === undefined ? sentence : `${sentence}\n${next}`;
  const traceId = headers['x-trace-id'];
  return new CliError(
    text,
    status === 403 && !OF_SANDBOX.test(sentence) ? EXIT.refused : EXIT.failure,
    status,
    typeof traceId === 'string' ? traceId : null,
  );
}

/** Commands that list records, for the error that a name has no record. */
const LISTS: readonly { readonly missing: RegExp; readonly command: string }[] = [
  { missing: /^Job \S+ does not exist/, command: 'rookery job list' },
  { missing: /^Schedule \S+ does not exist/, command: 'rookery job schedule list' },
  { missing: /^secret not found: /, command: 'rookery secret list' },
];

/**
 * Returns the next command to type. The service cannot suggest commands, because it does not know its client.
 */
function adviceFor(sentence: string): string | undefined {
  const secret = /\bsecret does not exist: ([\w.-]+)/.exec(sentence)?.[1];
  if (secret !== undefined) return `Write it: rookery secret set ${secret}`;
  const list = LISTS.find(({ missing }) => missing.test(sentence))?.command;
  if (list !== undefined) return `"${list}" shows those that exist.`;
  if (/^route not found: \S+ \S*\/api\/meta\//.test(sentence)) {
    return 'This frontend has no meta_service: say where it is with --meta-address or ROOKERY_META_ADDRESS.';
  }
  const path = /\b(?:mount source|code path) does not exist: (\/.*)$/.exec(sentence)?.[1];
  if (path === undefined || !existsSync(path)) return undefined;
  return 'The directory exists, but the user of the service may not read it. Upload the code instead: add --upload.';
}

/** Describes an answer of another server; proxies usually send pages. */
function unexpected(status: number, headers: IncomingHttpHeaders, body: string): string {
  const isPage = headers['content-type']?.startsWith('text/html') === true || /^\s*<(!doctype|html)/i.test(body);
  // The routes of Ray answer with text.
  const isText = status < 500 && headers['content-type']?.startsWith('text/plain') === true;
  if (isText && !isPage && body.trim() !== '') return cut(body.trim());
  if (!isPage) return `the service answered ${status}: ${cut(body)}`;
  const title = /<title>([^<]*)<\/title>/i.exec(body)?.[1]?.trim();
  const text = body
    .replace(/<[^>]*>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  return `a proxy before the service answered ${status}: ${cut(title || text || STATUS_CODES[status] || 'a page')}`;
}

/** Returns the JSON object of a text, or null. */
export function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** Returns the first 200 characters of a text. */
export function cut(text: string): string {
  return text.length > 200 ? `${text.slice(0, 199)}…` : text;
}
