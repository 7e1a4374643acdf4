import { createPublicKey, type KeyObject } from 'node:crypto';
import { errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import { permissionDenied, ServiceError, unauthenticated } from '../../core/error.ts';
import { isTenant } from '../../core/tenant.ts';
import type { Identity, Role, TokenVerifier } from './credentials.ts';
import { type FetchObserver, RemoteKeys } from './jwks.ts';

/** The configured key source. It determines the accepted algorithms; a token never does. */
export type JwtKey =
  /** HS256, at least 32 bytes. */
  | { readonly kind: 'secret'; readonly secret: Uint8Array }
  /** RS256, ES256 or EdDSA, depending on the type of the key. */
  | { readonly kind: 'publicKey'; readonly pem: string }
  | { readonly kind: 'jwks'; readonly url: string };

export interface JwtOptions {
  readonly key: JwtKey;
  readonly issuer?: string | null | undefined;
  readonly audience?: string | null | undefined;
  /** The role of a token without the claim `role`. Absent: `viewer`. */
  readonly defaultRole?: Role | undefined;
}

export const MIN_SECRET_BYTES = 32;
const CLOCK_SKEW_SECONDS = 60;
const MAX_CACHED_TOKENS = 10_000;
const MAX_CACHED_CHARS = 8 * 1024 * 1024;
/**
 * Longest time to cache a verified token. A key that was withdrawn from a JWKS stays accepted up to this much
 * longer.
 */
const MAX_CACHED_MS = 10 * 60_000;

/**
 * Creates a verifier for JWTs.
 * Checks the signature, `exp` (required), `nbf`, `iss` and `aud` when configured, `sub` (the tenant,
 * required) and `role`. Caches verified tokens by their text until they expire, for 10 minutes at most.
 * Throws a `RangeError` or `TypeError` for an unusable key.
 */
export function createJwtVerifier(options: JwtOptions, fetched: FetchObserver = () => undefined): TokenVerifier {
  const { algorithms, key } = openKey(options.key, fetched);
  const rules = {
    algorithms,
    clockTolerance: CLOCK_SKEW_SECONDS,
    requiredClaims: ['exp'],
    ...(options.issuer == null ? {} : { issuer: options.issuer }),
    ...(options.audience == null ? {} : { audience: options.audience }),
  };
  const verified = new LRUCache<string, { identity: Identity; untilMs: number }>({
    max: MAX_CACHED_TOKENS,
    maxSize: MAX_CACHED_CHARS,
    sizeCalculation: (_, token) => token.length,
  });

  return {
    known(token) {
      const entry = verified.get(token);
      return entry !== undefined && Date.now() < entry.untilMs ? entry.identity : undefined;
    },

    async verify(token) {
      let payload: JWTPayload;
      try {
        payload = (await (typeof key === 'function' ? jwtVerify(token, key, rules) : jwtVerify(token, key, rules)))
          .payload;
      } catch (error) {
        // The endpoint failed. This says nothing about the token, so the error is not `unauthenticated`.
        if (error instanceof ServiceError) throw error;
        throw failed(reasonOf(error), error);
      }
      const identity = identityOf(payload, options.defaultRole ?? 'viewer');
      verified.set(token, { identity, untilMs: Math.min(identity.untilMs, Date.now() + MAX_CACHED_MS) });
      return identity;
    },
  };
}

function openKey(
  key: JwtKey,
  fetched: FetchObserver,
): { algorithms: string[]; key: Uint8Array | KeyObject | JWTVerifyGetKey } {
  if (key.kind === 'secret') {
    if (key.secret.length < MIN_SECRET_BYTES) {
      throw new RangeError(`the JWT secret has ${key.secret.length} bytes, expected at least ${MIN_SECRET_BYTES}`);
    }
    return { algorithms: ['HS256'], key: key.secret };
  }
  if (key.kind === 'jwks') {
    const remote = new RemoteKeys(new URL(key.url), fetched);
    return { algorithms: ['RS256', 'ES256', 'EdDSA', 'Ed25519'], key: (header, token) => remote.find(header, token) };
  }
  const publicKey = createPublicKey(key.pem);
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = publicKey;
  if (type === 'rsa') return { algorithms: ['RS256'], key: publicKey };
  if (type === 'ed25519') return { algorithms: ['EdDSA', 'Ed25519'], key: publicKey };
  if (type === 'ec' && details?.namedCurve === 'prime256v1') return { algorithms: ['ES256'], key: publicKey };
  const curve = details?.namedCurve === undefined ? '' : ` (${details.namedCurve})`;
  throw new TypeError(`the JWT public key is of type ${type}${curve}, expected RSA, EC (P-256) or Ed25519`);
}

function identityOf(payload: JWTPayload, defaultRole: Role): Identity & { readonly untilMs: number } {
  const { sub, role, exp } = payload;
  if (typeof sub !== 'string' || sub === '') throw failed('claim "sub" is missing');
  if (!isTenant(sub)) throw failed('claim "sub" is not a tenant');
  const untilMs = ((exp as number) + CLOCK_SKEW_SECONDS) * 1000;
  const named = namedOf(payload);
  if (role === undefined) return { tenant: sub, role: defaultRole, ...named, untilMs };
  if (role !== 'viewer' && role !== 'user' && role !== 'developer') {
    throw permissionDenied(`unknown role in the token, expected ${ROLES.join(', ')}`);
  }
  return { tenant: sub, role, ...named, untilMs };
}

const MAX_NAME_CHARS = 128;

/** Returns the name of the token: the claim `name`, else `jti`. */
function namedOf({ name, jti }: JWTPayload): { readonly name?: string } {
  const found = [name, jti].find(each => typeof each === 'string' && each !== '');
  return found === undefined ? {} : { name: (found as string).slice(0, MAX_NAME_CHARS) };
}

const ROLES: readonly Role[] = ['viewer', 'user', 'developer'];

function failed(reason: string, cause?: unknown): ServiceError {
  return unauthenticated(`authentication failed: ${reason}`, { cause });
}

/** Describes a failure in the service's own words, because error texts of libraries may quote the token. */
function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return 'the token has expired';
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.reason === 'missing') return `claim "${error.claim}" is missing`;
    if (error.claim === 'nbf' && error.reason === 'check_failed') return 'the token is not valid yet';
    return `claim "${error.claim}" is not as expected`;
  }
  if (error instanceof errors.JWSSignatureVerificationFailed) return 'the signature is wrong';
  if (error instanceof errors.JOSEAlgNotAllowed) return 'the algorithm of the token is not allowed here';
  if (error instanceof errors.JWKSNoMatchingKey) return 'no known key signed the token';
  if (error instanceof errors.JWSInvalid || error instanceof errors.JWTInvalid) return 'the token is not a JWT';
  if (error instanceof errors.JOSEError) return `the token cannot be used (${error.code})`;
  return 'the token cannot be used';
}
