import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { LambdaError } from './failures.ts';
import { sha256Of } from './slices.ts';

/** The name of Signature Version 4 of AWS, the first word of `Authorization`. */
const ALGORITHM = 'AWS4-HMAC-SHA256';
const SERVICE = 'lambda';
const NO_BODY = Buffer.alloc(0);
/** Largest difference between the clocks of client and service. */
const MAX_SKEW_MS = 5 * 60_000;
const TIME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/;
const PARTS = /^AWS4-HMAC-SHA256 +Credential=([^ ,]+) *, *SignedHeaders=([^ ,]+) *, *Signature=([0-9a-f]{64}) *$/;

/** The signature of a request, whose form, time and signed headers have been checked. */
export interface RequestSignature {
  readonly accessKeyId: string;
  /** Date, region, service and `aws4_request`, separated by `/`. */
  readonly scope: string;
  /** `YYYYMMDDTHHMMSSZ`. */
  readonly time: string;
  readonly signedHeaders: readonly string[];
  /** Hexadecimal. */
  readonly signature: string;
}

/** The parts of a request that a signature covers, in addition to the body. */
export type SignedRequest = Pick<IncomingMessage, 'method' | 'url' | 'headers'>;

/** Returns true if the request claims a signature of AWS. */
export function isSigned(headers: IncomingMessage['headers']): boolean {
  return headers.authorization?.startsWith(ALGORITHM) === true;
}

/**
 * Reads the signature of a request. Fails with a `LambdaError` if it is incomplete, for another service, or
 * from a clock that differs by more than 5 minutes. Verifies no key.
 */
export function readSignature({ headers }: SignedRequest, nowMs: number): RequestSignature {
  const [, credential = '', names = '', signature = ''] = PARTS.exec(headers.authorization ?? '') ?? [];
  if (signature === '')
    throw incomplete(`Authorization must be "${ALGORITHM} Credential=…, SignedHeaders=…, Signature=…"`);
  const [accessKeyId = '', date = '', region = '', service = '', end = '', ...more] = credential.split('/');
  if (accessKeyId === '' || region === '' || end !== 'aws4_request' || more.length > 0) {
    throw incomplete('Credential must be <access key id>/<date>/<region>/lambda/aws4_request');
  }
  if (service !== SERVICE) throw wrong(`Credential must be scoped to the service "${SERVICE}", got "${service}"`);
  const time = headers['x-amz-date'];
  const at = typeof time === 'string' ? TIME.exec(time) : null;
  if (typeof time !== 'string' || at === null) throw incomplete('X-Amz-Date must be a time such as 20260131T235900Z');
  if (!time.startsWith(date) || date.length !== 8) {
    throw wrong(`the date in Credential (${date}) is not the day of X-Amz-Date (${time})`);
  }
  const [, year, month, day, hour, minute, second] = at.map(Number);
  const sentMs = Date.UTC(year as number, (month as number) - 1, day, hour, minute, second);
  if (Math.abs(sentMs - nowMs) > MAX_SKEW_MS) {
    throw wrong(
      `Signature expired: ${time} differs by more than 5 minutes from the service's clock, ${new Date(nowMs).toISOString()}`,
    );
  }
  const signedHeaders = names.split(';');
  const mustSign = Object.keys(headers).filter(name => name === 'host' || name.startsWith('x-amz-'));
  const missing = mustSign.filter(name => !signedHeaders.includes(name));
  if (missing.length > 0) throw wrong(`SignedHeaders must include ${missing.join(', ')}`);
  return { accessKeyId, scope: `${date}/${region}/${service}/${end}`, time, signedHeaders, signature };
}

/** Rejects with a `LambdaError` unless `secret` signed the request with this body. */
export async function verifySignature(
  signature: RequestSignature,
  secret: string,
  request: SignedRequest,
  body: Buffer | undefined,
): Promise<void> {
  const { scope, time, signedHeaders } = signature;
  const hash = await sha256Of(body ?? NO_BODY);
  const claimed = request.headers['x-amz-content-sha256'];
  if (claimed !== undefined && claimed !== hash) throw wrong('X-Amz-Content-Sha256 is not the hash of the body');
  const canonical = canonicalRequest(request, signedHeaders, hash);
  const text = [ALGORITHM, time, scope, hashOf(canonical)].join('\n');
  const key = scope.split('/').reduce<string | Buffer>((above, part) => hmac(above, part), `AWS4${secret}`);
  if (!timingSafeEqual(hmac(key, text), Buffer.from(signature.signature, 'hex'))) {
    throw wrong(
      'The request signature does not match: check the secret access key, and that no proxy changes the path or the Host header',
    );
  }
}

/** Returns the error of a key that does not exist. */
export function unknownKey(): LambdaError {
  return new LambdaError({
    status: 403,
    type: 'UnrecognizedClientException',
    message: 'The access key id is not known: rookery token create --aws makes a key',
  });
}

function canonicalRequest({ method, url = '', headers }: SignedRequest, signed: readonly string[], hash: string) {
  const [path = '', query = ''] = splitOnce(url, '?');
  const lines = signed.map(name => {
    const value = headers[name];
    if (value === undefined) throw wrong(`SignedHeaders names ${name}, which the request does not have`);
    return `${name}:${String(value).trim().replace(/ +/g, ' ')}\n`;
  });
  // Clients encode the path a second time, and the query once.
  const canonicalPath = path.split('/').map(encode).join('/');
  return [method, canonicalPath, canonicalQuery(query), lines.join(''), signed.join(';'), hash].join('\n');
}

function canonicalQuery(query: string): string {
  if (query === '') return '';
  const pairs = query.split('&').map(pair => splitOnce(pair, '=').map(decode).map(encode));
  return pairs
    .map(([name = '', value = '']) => [name, value] as const)
    .sort(([a, av], [b, bv]) => (a === b ? compare(av, bv) : compare(a, b)))
    .map(([name, value]) => `${name}=${value}`)
    .join('&');
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function splitOnce(text: string, at: string): string[] {
  const index = text.indexOf(at);
  return index < 0 ? [text, ''] : [text.slice(0, index), text.slice(index + 1)];
}

function encode(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, sign => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function hashOf(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function incomplete(message: string): LambdaError {
  return new LambdaError({ status: 400, type: 'IncompleteSignatureException', message });
}

function wrong(message: string): LambdaError {
  return new LambdaError({ status: 403, type: 'InvalidSignatureException', message });
}
