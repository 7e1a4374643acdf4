import { createPublicKey, type KeyObject } from 'node:crypto';
import { createRemoteJWKSet, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import { messageOf, permissionDenied, type ServiceError, unauthenticated } from '../core/error.ts';
import { isTenant } from '../core/tenant.ts';
import type { Identity, Role, TokenVerifier } from './credentials.ts';

/** The one key source that is configured. The algorithms follow from it, never from a token. */
export type JwtKey =
  /** HS256, at least 32 bytes. */
  | { readonly kind: 'secret'; readonly secret: Uint8Array }
  /** RS256, ES256 or EdDSA, by the type of the key. */
  | { readonly kind: 'publicKey'; readonly pem: string }
  | { readonly kind: 'jwks'; readonly url: string };

export interface JwtOptions {
  readonly key: JwtKey;
  readonly issuer?: string | null | undefined;
  readonly audience?: string | null | undefined;
  /** Of a token without the claim `role`; the least one when absent. */
  readonly defaultRole?: Role | undefined;
}

export const MIN_SECRET_BYTES = 32;
const CLOCK_SKEW_SECONDS = 60;
const MAX_CACHED_TOKENS = 10_000;
const MAX_CACHED_CHARS = 8 * 1024 * 1024;
/** A key that was withdrawn from a JWKS may be believed this much longer. */
const MAX_CACHED_MS = 10 * 60_000;
const JWKS_TIMEOUT_MS = 5_000;

/**
 * Checks JWTs as the decisions say: signature, `exp` (required), `nbf`, `iss` and `aud` when configured, `sub` = tenant
 * (required), `role`. Tokens that passed are remembered by their text until they expire.
 * Throws a `RangeError` or `TypeError` for a key that cannot be used.
 */
export function createJwtVerifier(options: JwtOptions): TokenVerifier {
  const { algorithms, key } = openKey(options.key);
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
        throw failed(reasonOf(error), error);
      }
      const identity = identityOf(payload, options.defaultRole ?? 'viewer');
      verified.set(token, { identity, untilMs: Math.min(identity.untilMs, Date.now() + MAX_CACHED_MS) });
      return identity;
    },
  };
}

function openKey(key: JwtKey): { algorithms: string[]; key: Uint8Array | KeyObject | JWTVerifyGetKey } {
  if (key.kind === 'secret') {
    if (key.secret.length < MIN_SECRET_BYTES) {
      throw new RangeError(`the JWT secret has ${key.secret.length} bytes, expected at least ${MIN_SECRET_BYTES}`);
    }
    return { algorithms: ['HS256'], key: key.secret };
  }
  if (key.kind === 'jwks') {
    const remote = createRemoteJWKSet(new URL(key.url), { timeoutDuration: JWKS_TIMEOUT_MS });
    return { algorithms: ['RS256', 'ES256', 'EdDSA', 'Ed25519'], key: remote };
  }
  const publicKey = createPublicKey(key.pem);
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = publicKey;
  if (type === 'rsa') return { algorithms: ['RS256'], key: publicKey };
  if (type === 'ed25519') return { algorithms: ['EdDSA', 'Ed25519'], key: publicKey };
  if (type === 'ec' && details?.namedCurve === 'prime256v1') return { algorithms: ['ES256'], key: publicKey };
  const curve = details?.namedCurve === undefined ? '' : ` (${details.namedCurve})`;
  throw new TypeError(`the JWT public key is of type ${type}${curve}, expected RSA, EC (P-256) or Ed25519`);
}

function identityOf({ sub, role, exp }: JWTPayload, defaultRole: Role): Identity & { readonly untilMs: number } {
  if (typeof sub !== 'string' || sub === '') throw failed('claim "sub" is missing');
  if (!isTenant(sub)) throw failed('claim "sub" is not a tenant');
  const untilMs = ((exp as number) + CLOCK_SKEW_SECONDS) * 1000;
  if (role === undefined) return { tenant: sub, role: defaultRole, untilMs };
  if (role !== 'viewer' && role !== 'user' && role !== 'developer') {
    throw permissionDenied(`unknown role in the token, expected ${ROLES.join(', ')}`);
  }
  return { tenant: sub, role, untilMs };
}

const ROLES: readonly Role[] = ['viewer', 'user', 'developer'];

function failed(reason: string, cause?: unknown): ServiceError {
  return unauthenticated(`authentication failed: ${reason}`, { cause });
}

/** In our words: foreign texts may quote the token. */
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
  if (error instanceof errors.JWKSTimeout) return 'the signing keys could not be fetched in time';
  if (error instanceof errors.JOSEError) return `the token cannot be used (${error.code})`;
  return `the signing keys could not be fetched (${messageOf(error)})`;
}
