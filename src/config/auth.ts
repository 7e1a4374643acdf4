import { createPublicKey, type KeyObject } from 'node:crypto';
import { isLoopback } from './contradictions.ts';
import { checkPrivate, checkSecret, type Result, readSecretFile, readWhole } from './secret-keys.ts';
import type { Values } from './settings.ts';

/** The verification of tokens. The key decides the algorithm; a token never does. */
export interface Auth {
  readonly key:
    | { readonly kind: 'secret'; readonly secret: Uint8Array }
    /** SPKI in PEM: RSA, EC P-256 or Ed25519. */
    | { readonly kind: 'publicKey'; readonly pem: string }
    | { readonly kind: 'jwks'; readonly url: string };
  readonly issuer: string | null;
  readonly audience: string | null;
  /** A sentence about the secret's file when other users can read it; null: they cannot. */
  readonly warning: string | null;
  /** Role of tokens that name none. */
  readonly defaultRole: 'developer' | 'user' | 'viewer';
}

const MIN_RSA_BITS = 2048;
const KEY_SETTINGS = ['jwt.secret', 'jwt.secretFile', 'jwt.publicKeyFile', 'jwt.jwksUrl'] as const;

/**
 * Reads the key that the settings name. `auth` is null when authentication is off, or when there are
 * problems. Problems of settings in `isWrong` are omitted, because those settings could not be read and have
 * a sentence already.
 */
export async function readAuth(
  values: Values,
  isWrong: ReadonlySet<string> = new Set(),
): Promise<{ auth: Auth | null; problems: string[] }> {
  const keys = KEY_SETTINGS.filter(path => values[path] !== null);
  const problems: string[] = [];
  if (keys.length > 1) problems.push(`${list(keys)} are all set: one key is used, so set only one of them.`);
  const isUnknown = isWrong.has('enable_func_token_auth');
  if (!values.enable_func_token_auth && !isUnknown) return { auth: null, problems };
  if (keys.length === 0 && !isUnknown && !KEY_SETTINGS.some(path => isWrong.has(path))) {
    problems.push(
      `enable_func_token_auth is true and there is no key to verify tokens with: set one of ${list(KEY_SETTINGS)}.`,
    );
  }
  let found: Auth['key'] | undefined;
  for (const name of keys) {
    const key = await readKey(name, values[name] as string);
    if ('problem' in key) problems.push(key.problem);
    else found = key.value;
  }
  if (found === undefined || problems.length > 0) return { auth: null, problems };
  const secretFile = values['jwt.secretFile'];
  const checked = secretFile === null ? { value: null } : await checkPrivate('jwt.secretFile', secretFile);
  const auth = {
    key: found,
    warning: 'problem' in checked ? checked.problem : null,
    issuer: values['jwt.issuer'],
    audience: values['jwt.audience'],
    defaultRole: values['jwt.defaultRole'],
  };
  return { auth, problems };
}

async function readKey(name: (typeof KEY_SETTINGS)[number], value: string): Promise<Result<Auth['key']>> {
  switch (name) {
    case 'jwt.secret': {
      const secret = checkSecret(name, new TextEncoder().encode(value));
      return 'problem' in secret ? secret : { value: { kind: 'secret', secret: secret.value } };
    }
    case 'jwt.secretFile': {
      const secret = await readSecretFile(name, value);
      return 'problem' in secret ? secret : { value: { kind: 'secret', secret: secret.value } };
    }
    case 'jwt.publicKeyFile':
      return readPublicKey(name, value);
    case 'jwt.jwksUrl':
      return checkJwksUrl(name, value);
  }
}

async function readPublicKey(name: string, file: string): Promise<Result<Auth['key']>> {
  const read = await readWhole(name, file);
  if ('problem' in read) return read;
  const text = new TextDecoder().decode(read.value);
  if (text.includes('PRIVATE KEY')) {
    return { problem: `${name}: ${file} holds a private key; the service needs only the public one, so give it that.` };
  }
  let key: KeyObject;
  try {
    key = createPublicKey(text);
  } catch {
    return { problem: `${name}: ${file} is not a public key in PEM ("-----BEGIN PUBLIC KEY-----").` };
  }
  if (!isUsable(key)) {
    const kind = [key.asymmetricKeyType, key.asymmetricKeyDetails?.namedCurve].filter(Boolean).join(' ');
    const wanted = `RSA (at least ${MIN_RSA_BITS} bits), EC P-256 or Ed25519`;
    return { problem: `${name}: ${file} is a key that cannot be used (${kind}); it must be ${wanted}.` };
  }
  return { value: { kind: 'publicKey', pem: key.export({ type: 'spki', format: 'pem' }).toString() } };
}

function isUsable(key: KeyObject): boolean {
  const details = key.asymmetricKeyDetails;
  if (key.asymmetricKeyType === 'rsa') return (details?.modulusLength ?? 0) >= MIN_RSA_BITS;
  if (key.asymmetricKeyType === 'ec') return details?.namedCurve === 'prime256v1';
  return key.asymmetricKeyType === 'ed25519';
}

function checkJwksUrl(name: string, value: string): Result<Auth['key']> {
  const url = URL.canParse(value) ? new URL(value) : null;
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname));
  if (isSafe) return { value: { kind: 'jwks', url: value } };
  return { problem: `${name} must be an https URL (http only on loopback), not ${JSON.stringify(value)}.` };
}

function list(names: readonly string[]): string {
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}
