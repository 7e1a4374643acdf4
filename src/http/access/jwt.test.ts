import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, type JWTPayload, SignJWT } from 'jose';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createJwtVerifier, type JwtOptions } from './jwt.ts';

const SECRET = Buffer.from('0123456789abcdef0123456789abcdef');
const nowSeconds = () => Math.floor(Date.now() / 1000);
const pem = (key: KeyObject) => key.export({ type: 'spki', format: 'pem' }).toString();

interface TokenOptions {
  key?: Uint8Array | KeyObject;
  alg?: string;
  kid?: string;
}

function token(
  claims: Record<string, unknown> = {},
  { key = SECRET, alg = 'HS256', kid }: TokenOptions = {},
): Promise<string> {
  const payload: JWTPayload = { sub: 'acme', exp: nowSeconds() + 3600, ...claims };
  return new SignJWT(payload).setProtectedHeader({ alg, ...(kid === undefined ? {} : { kid }) }).sign(key);
}

const verifier = (options: Omit<JwtOptions, 'key'> = {}) =>
  createJwtVerifier({ key: { kind: 'secret', secret: SECRET }, ...options });
const unsigned = (header: object, payload: object) =>
  `${[header, payload].map(part => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')}.`;

afterEach(() => {
  vi.useRealTimers();
});

describe('HS256', () => {
  test('the tenant is the claim sub, and a token without a role is a viewer', async () => {
    expect(await verifier().verify(await token())).toMatchObject({ tenant: 'acme', role: 'viewer' });
  });

  test.each(['viewer', 'user', 'developer'])('a token with the role %s is accepted with this role', async role => {
    expect(await verifier().verify(await token({ role }))).toMatchObject({ tenant: 'acme', role });
  });

  test('a token is valid until its exp plus the clock skew', async () => {
    const exp = nowSeconds() + 100;
    expect(await verifier().verify(await token({ exp }))).toMatchObject({ untilMs: (exp + 60) * 1000 });
  });

  test.each(['admin', '', null, 5, ['user']])('a token with the role %j is permission_denied', async role => {
    await expect(verifier().verify(await token({ role }))).rejects.toMatchObject({ code: 'permission_denied' });
  });

  test.each<[string, () => Promise<string> | string]>([
    ['claim "exp" is missing', () => token({ exp: undefined })],
    ['the token has expired', () => token({ exp: nowSeconds() - 61 })],
    ['the token is not valid yet', () => token({ nbf: nowSeconds() + 90 })],
    ['claim "sub" is missing', () => token({ sub: undefined })],
    ['claim "sub" is missing', () => token({ sub: '' })],
    ['claim "sub" is not a tenant', () => token({ sub: '-x' })],
    ['claim "sub" is not a tenant', () => token({ sub: 'a/b' })],
    ['the signature is wrong', () => token({}, { key: Buffer.from('another secret of at least 32 bytes!') })],
    ['the algorithm of the token is not allowed here', () => token({}, { key: Buffer.alloc(64, 1), alg: 'HS512' })],
    [
      'the algorithm of the token is not allowed here',
      () => unsigned({ alg: 'none' }, { sub: 'acme', exp: nowSeconds() + 60 }),
    ],
    ['the token is not a JWT', () => 'nonsense'],
    ['the token is not a JWT', () => 'a.b.c'],
    ['the token is not a JWT', () => '..'],
  ])('a token is refused with the reason: %s', async (reason, make) => {
    await expect(verifier().verify(await make())).rejects.toMatchObject({
      code: 'unauthenticated',
      message: `authentication failed: ${reason}`,
    });
  });

  test('a token is accepted within 60 s of clock skew', async () => {
    await expect(verifier().verify(await token({ exp: nowSeconds() - 50 }))).resolves.toBeDefined();
    await expect(verifier().verify(await token({ nbf: nowSeconds() + 50 }))).resolves.toBeDefined();
  });

  test('a token with a changed payload is refused for its signature', async () => {
    const [header, , signature] = (await token()).split('.');
    const payload = Buffer.from(JSON.stringify({ sub: 'other', exp: nowSeconds() + 60 })).toString('base64url');
    await expect(verifier().verify(`${header}.${payload}.${signature}`)).rejects.toThrow('the signature is wrong');
  });

  test('a secret of less than 32 bytes is refused', () => {
    expect(() => createJwtVerifier({ key: { kind: 'secret', secret: Buffer.alloc(31) } })).toThrow(
      'the JWT secret has 31 bytes, expected at least 32',
    );
  });
});

describe('iss and aud are checked when configured', () => {
  const strict = verifier({ issuer: 'https://iss.example', audience: 'rookery' });
  test('a token with the expected iss and aud passes', async () => {
    await expect(
      strict.verify(await token({ iss: 'https://iss.example', aud: ['x', 'rookery'] })),
    ).resolves.toBeDefined();
  });
  test.each([
    ['claim "iss" is missing', { aud: 'rookery' }],
    ['claim "iss" is not as expected', { iss: 'other', aud: 'rookery' }],
    ['claim "aud" is missing', { iss: 'https://iss.example' }],
    ['claim "aud" is not as expected', { iss: 'https://iss.example', aud: 'other' }],
  ])('a token is refused when issuer and audience are configured: %s', async (reason, claims) => {
    await expect(strict.verify(await token(claims))).rejects.toThrow(`authentication failed: ${reason}`);
  });
  test('a token with any iss and aud passes when neither is configured', async () => {
    await expect(verifier().verify(await token({ iss: 'x', aud: 'y' }))).resolves.toBeDefined();
  });
});

describe('public keys', () => {
  const pairs = {
    RS256: generateKeyPairSync('rsa', { modulusLength: 2048 }),
    ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    EdDSA: generateKeyPairSync('ed25519'),
  };

  test.each(['RS256', 'ES256', 'EdDSA'] as const)(
    'a token signed with %s is accepted with the public key',
    async alg => {
      const { publicKey, privateKey } = pairs[alg];
      const only = createJwtVerifier({ key: { kind: 'publicKey', pem: pem(publicKey) } });
      await expect(only.verify(await token({}, { key: privateKey, alg }))).resolves.toMatchObject({ tenant: 'acme' });
    },
  );

  test('a token signed with the public key’s text as an HS256 secret is refused', async () => {
    const text = pem(pairs.RS256.publicKey);
    const only = createJwtVerifier({ key: { kind: 'publicKey', pem: text } });
    await expect(only.verify(await token({}, { key: Buffer.from(text) }))).rejects.toThrow(
      'the algorithm of the token is not allowed here',
    );
  });

  test('a key of another type is refused with the expected type', () => {
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
    expect(() => createJwtVerifier({ key: { kind: 'publicKey', pem: pem(publicKey) } })).toThrow(
      'the JWT public key is of type ec (secp384r1), expected RSA, EC (P-256) or Ed25519',
    );
  });

  test('a token is verified with the key of the JWKS that it names', async () => {
    const jwk = { ...(await exportJWK(pairs.ES256.publicKey)), kid: 'k1', alg: 'ES256' };
    const server = createServer((_request, response) => response.end(JSON.stringify({ keys: [jwk] })));
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`;
      const remote = createJwtVerifier({ key: { kind: 'jwks', url } });
      const { privateKey: key } = pairs.ES256;
      await expect(remote.verify(await token({}, { key, alg: 'ES256', kid: 'k1' }))).resolves.toMatchObject({
        tenant: 'acme',
      });
      await expect(remote.verify(await token({}, { key, alg: 'ES256', kid: 'k2' }))).rejects.toThrow(
        'authentication failed: no known key signed the token',
      );
      await expect(remote.verify(await token({}))).rejects.toThrow('the algorithm of the token is not allowed here');
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

  test('a token is answered 503 with Retry-After when the JWKS was never fetched', async () => {
    const remote = createJwtVerifier({ key: { kind: 'jwks', url: 'http://127.0.0.1:1/jwks' } });
    const sent = await token({}, { key: pairs.ES256.privateKey, alg: 'ES256' });
    await expect(remote.verify(sent)).rejects.toMatchObject({
      code: 'unavailable',
      retryAfterSeconds: 1,
      message: expect.stringContaining('see jwt.jwksUrl'),
    });
  });

  describe('a failing JWKS endpoint', () => {
    const { privateKey: key, publicKey } = pairs.ES256;
    const signed = (kid: string) => token({ exp: nowSeconds() + 30 * 86_400 }, { key, alg: 'ES256', kid });
    const setOf = async (kid: string) =>
      JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: 'ES256' }] });
    const later = (ms: number) => vi.useFakeTimers({ now: Date.now() + ms, toFake: ['Date'] });

    /** Starts a JWKS endpoint whose answer a test can change; `asked` counts its requests. */
    async function endpoint() {
      const it = { status: 200, body: await setOf('k1'), asked: 0, problems: [] as (string | null)[] };
      const server = createServer((_request, response) => {
        it.asked += 1;
        response.writeHead(it.status).end(it.body);
      });
      await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`;
      const auth = createJwtVerifier({ key: { kind: 'jwks', url } }, problem => it.problems.push(problem));
      const end = () => {
        server.close();
        server.closeAllConnections();
      };
      return Object.assign(it, { auth, [Symbol.dispose]: end });
    }

    test.each([
      ['an error', 500, ''],
      ['an empty set', 200, '{"keys":[]}'],
      ['an answer that is not a key set', 200, '<html>'],
      ['a redirect', 302, ''],
    ])(
      'a JWKS endpoint that answers with %s is queried once for many calls, and the last keys stay in use',
      async (_, status, body) => {
        using it = await endpoint();
        await it.auth.verify(await signed('k1'));
        later(11 * 60_000);
        Object.assign(it, { status, body });
        const sent = await signed('k1');
        for (let count = 0; count < 20; count++) await expect(it.auth.verify(sent)).resolves.toBeDefined();
        expect(it.asked).toBe(2);
        expect(it.problems).toEqual([null, expect.any(String)]);
      },
    );

    test('tokens of unknown keys are 503 until the JWKS endpoint recovers', async () => {
      using it = await endpoint();
      await it.auth.verify(await signed('k1'));
      later(11 * 60_000);
      it.status = 500;
      await expect(it.auth.verify(await signed('k2'))).rejects.toMatchObject({ code: 'unavailable' });
      Object.assign(it, { status: 200, body: await setOf('k2') });
      later(31_000);
      await expect(it.auth.verify(await signed('k2'))).resolves.toBeDefined();
      await expect(it.auth.verify(await signed('k1'))).rejects.toThrow('no known key signed the token');
    });

    test('the last keys of a failing JWKS endpoint expire after a day', async () => {
      using it = await endpoint();
      await it.auth.verify(await signed('k1'));
      it.status = 500;
      later(25 * 3_600_000);
      await expect(it.auth.verify(await signed('k1'))).rejects.toMatchObject({ code: 'unavailable' });
    });

    test('a JWKS endpoint is queried once for many concurrent tokens', async () => {
      using it = await endpoint();
      const sent = await Promise.all(Array.from({ length: 10 }, () => signed('k1')));
      await Promise.all(sent.map(text => it.auth.verify(text)));
      expect(it.asked).toBe(1);
    });
  });
});

describe('the cache of verified tokens', () => {
  test('a verified token is cached until it expires', async () => {
    const auth = verifier();
    const sent = await token({ exp: nowSeconds() + 120 });
    expect(auth.known(sent)).toBeUndefined();
    await auth.verify(sent);
    expect(auth.known(sent)).toMatchObject({ tenant: 'acme', role: 'viewer' });
    vi.useFakeTimers({ now: Date.now() + 181_000, toFake: ['Date'] });
    expect(auth.known(sent)).toBeUndefined();
    await expect(auth.verify(sent)).rejects.toThrow('the token has expired');
  });

  test('a verified token is cached for at most ten minutes, after which a withdrawn key is noticed', async () => {
    const auth = verifier();
    const sent = await token();
    await auth.verify(sent);
    vi.useFakeTimers({ now: Date.now() + 600_001, toFake: ['Date'] });
    expect(auth.known(sent)).toBeUndefined();
    await expect(auth.verify(sent)).resolves.toBeDefined();
  });

  test('a token that failed is not cached', async () => {
    const auth = verifier();
    const sent = await token({ sub: '' });
    await expect(auth.verify(sent)).rejects.toThrow();
    expect(auth.known(sent)).toBeUndefined();
  });
});
