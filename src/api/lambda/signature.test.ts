import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { readSignature, type SignedRequest, verifySignature } from './signature.ts';

/** The example of AWS's own description of Signature Version 4. */
const SECRET = 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY';
const EXAMPLE: SignedRequest = {
  method: 'GET',
  url: '/?Action=ListUsers&Version=2010-05-08',
  headers: {
    host: 'iam.amazonaws.com',
    'content-type': 'application/x-www-form-urlencoded; charset=utf-8',
    'x-amz-date': '20150830T123600Z',
  },
};
const SIGNED = {
  accessKeyId: 'AKIDEXAMPLE',
  scope: '20150830/us-east-1/iam/aws4_request',
  time: '20150830T123600Z',
  signedHeaders: ['content-type', 'host', 'x-amz-date'],
  signature: '5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7',
};

describe('the signature of a request', () => {
  test('the published example is valid, with its query in any order', async () => {
    await verifySignature(SIGNED, SECRET, EXAMPLE, undefined);
    await verifySignature(SIGNED, SECRET, { ...EXAMPLE, url: '/?Version=2010-05-08&Action=ListUsers' }, undefined);
  });

  test.each([
    ['another secret', SIGNED, `${SECRET}.`, EXAMPLE, undefined],
    ['a body', SIGNED, SECRET, EXAMPLE, Buffer.from('{}')],
    ['another path', SIGNED, SECRET, { ...EXAMPLE, url: '/x?Action=ListUsers&Version=2010-05-08' }, undefined],
    ['another query', SIGNED, SECRET, { ...EXAMPLE, url: '/?Action=ListRoles&Version=2010-05-08' }, undefined],
    ['another method', SIGNED, SECRET, { ...EXAMPLE, method: 'POST' }, undefined],
    ['another host', SIGNED, SECRET, { ...EXAMPLE, headers: { ...EXAMPLE.headers, host: 'other' } }, undefined],
    ['another region', { ...SIGNED, scope: '20150830/eu-west-1/iam/aws4_request' }, SECRET, EXAMPLE, undefined],
    ['a header fewer', { ...SIGNED, signedHeaders: ['host', 'x-amz-date'] }, SECRET, EXAMPLE, undefined],
    ['a header more', { ...SIGNED, signedHeaders: ['host', 'range'] }, SECRET, EXAMPLE, undefined],
  ])('the published example is refused with %s', async (_what, signature, secret, request, body) => {
    await expect(verifySignature(signature, secret, request, body)).rejects.toMatchObject({
      refusal: { status: 403, type: 'InvalidSignatureException' },
    });
  });

  test.each([3, 300_000])('the hash that a client claims is that of a body of %d bytes', async bytes => {
    const body = Buffer.alloc(bytes, 'body');
    const claim = (hash: string) => ({ ...EXAMPLE, headers: { ...EXAMPLE.headers, 'x-amz-content-sha256': hash } });
    const hash = createHash('sha256').update(body).digest('hex');
    await expect(verifySignature(SIGNED, SECRET, claim(hash), body)).rejects.toThrow('does not match');
    await expect(verifySignature(SIGNED, SECRET, claim('0'.repeat(64)), body)).rejects.toThrow('X-Amz-Content-Sha256');
  });
});

describe('the head of a signed request', () => {
  const NOW = Date.UTC(2026, 0, 31, 12, 0, 0);
  const read = (
    changes: { credential?: string; signed?: string; date?: string; authorization?: string } = {},
    headers: Record<string, string> = {},
  ) => {
    const {
      credential = 'KEY/20260131/us-east-1/lambda/aws4_request',
      signed = 'host;x-amz-date',
      date = '20260131T120000Z',
      authorization = `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${signed}, Signature=${'0'.repeat(64)}`,
    } = changes;
    const all = { host: 'h', 'x-amz-date': date, authorization, ...headers };
    return readSignature({ method: 'GET', url: '/', headers: all }, NOW);
  };

  test('the parts of Authorization are read, within 5 minutes of the clock', () => {
    expect(read()).toMatchObject({ accessKeyId: 'KEY', scope: '20260131/us-east-1/lambda/aws4_request' });
    expect(read({ date: '20260131T115501Z' }).time).toBe('20260131T115501Z');
    expect(read({ date: '20260131T120459Z' }).time).toBe('20260131T120459Z');
  });

  test.each([
    [{ authorization: 'AWS4-HMAC-SHA256 Credential=a' }, {}, 400, 'Authorization must be'],
    [{ credential: 'KEY/20260131/us-east-1/lambda' }, {}, 400, 'Credential must be'],
    [{ date: 'Sat, 31 Jan 2026 12:00:00 GMT' }, {}, 400, 'X-Amz-Date must be'],
    [{ credential: 'KEY/20260131/us-east-1/s3/aws4_request' }, {}, 403, 'scoped to the service "lambda", got "s3"'],
    [{ credential: 'KEY/20260130/us-east-1/lambda/aws4_request' }, {}, 403, 'is not the day of X-Amz-Date'],
    [{ date: '20260131T115459Z' }, {}, 403, 'Signature expired: 20260131T115459Z'],
    [{ date: '20260131T120501Z' }, {}, 403, 'differs by more than 5 minutes'],
    [{ signed: 'x-amz-date' }, {}, 403, 'SignedHeaders must include host'],
    [{ signed: 'host' }, {}, 403, 'SignedHeaders must include x-amz-date'],
    [{}, { 'x-amz-invocation-type': 'Event' }, 403, 'SignedHeaders must include x-amz-invocation-type'],
  ])('%j with the headers %j is refused with %i', (changes, headers, status, message) => {
    expect(() => read(changes, headers)).toThrow(
      expect.objectContaining({
        message: expect.stringContaining(message),
        refusal: expect.objectContaining({ status }),
      }),
    );
  });
});
