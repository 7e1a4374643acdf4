import type { IncomingHttpHeaders } from 'node:http';
import { isSameText, readSignedUrl, signatureOf } from '../e2b/sandboxes.ts';
import { HttpError } from './errors.ts';

const NO_TOKEN = 'unauthorized access, please provide a valid access token or method signing if supported';

/** Checks `X-Access-Token`. Fails with 401. */
export function checkToken(headers: IncomingHttpHeaders, token: string): void {
  const sent = headers['x-access-token'];
  if (typeof sent !== 'string' || !isSameText(sent, token)) throw new HttpError(401, NO_TOKEN);
}

/** Checks the token or, without one, the signature of a file request. Fails with 401. */
export function checkTokenOrSignature(
  headers: IncomingHttpHeaders,
  query: URLSearchParams,
  operation: 'read' | 'write',
  token: string,
): void {
  const sent = headers['x-access-token'];
  if (typeof sent === 'string' && sent !== '') {
    if (isSameText(sent, token)) return;
    throw new HttpError(401, 'access token present in header but does not match');
  }
  const signed = readSignedUrl(query, operation);
  if (signed === null) throw new HttpError(401, 'missing signature query parameter');
  const { url, signature } = signed;
  if (!isSameText(signature, signatureOf(url, token))) throw new HttpError(401, 'invalid signature');
  // The signature covers the text of the time. A text that is no number never was valid.
  if (url.expiration !== '' && !(Number(url.expiration) >= Math.floor(Date.now() / 1000))) {
    throw new HttpError(401, 'signature is already expired');
  }
}

/**
 * Returns the user that `Authorization: Basic` names; `''`: the default user. The password has no meaning.
 */
export function userOf(headers: IncomingHttpHeaders): string {
  const [, encoded] = /^basic +([A-Za-z0-9+/_=-]*) *$/i.exec(headers.authorization ?? '') ?? [];
  if (encoded === undefined) return '';
  return Buffer.from(encoded, 'base64').toString().replace(/:.*$/s, '');
}
