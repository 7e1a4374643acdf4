import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

/** A certificate authority for tests. */
export interface Authority {
  readonly cert: string;
  /** Issues a certificate with its key, both in PEM. */
  issue(name: string): { readonly cert: string; readonly key: string };
}

/**
 * Creates an authority for X.509 (RFC 5280) with P-256, limited to the parts that TLS needs. Node cannot
 * create certificates.
 */
export function authority(name: string): Authority {
  const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return {
    cert: certificate({
      subject: name,
      issuer: name,
      publicKey: pair.publicKey,
      signer: pair.privateKey,
      isAuthority: true,
    }),
    issue(subject) {
      const own = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const { publicKey } = own;
      const cert = certificate({ subject, issuer: name, publicKey, signer: pair.privateKey, isAuthority: false });
      return { cert, key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
    },
  };
}

interface Wanted {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly isAuthority: boolean;
}

const DAY_MS = 86_400_000;
const ECDSA_SHA256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const COMMON_NAME = [0x55, 0x04, 0x03];
const BASIC_CONSTRAINTS = [0x55, 0x1d, 0x13];
const ALTERNATIVE_NAME = [0x55, 0x1d, 0x11];

function certificate({ subject, issuer, publicKey, signer, isAuthority }: Wanted): string {
  const algorithm = sequence(der(0x06, Buffer.from(ECDSA_SHA256)));
  const now = Date.now();
  const constraints = sequence(...(isAuthority ? [der(0x01, Buffer.of(0xff))] : []));
  const extensions = [
    sequence(der(0x06, Buffer.from(BASIC_CONSTRAINTS)), der(0x01, Buffer.of(0xff)), der(0x04, constraints)),
  ];
  if (!isAuthority) {
    // Some TLS libraries, such as the one of Deno, ignore the common name.
    const name = sequence(der(0x82, Buffer.from(subject)));
    extensions.push(sequence(der(0x06, Buffer.from(ALTERNATIVE_NAME)), der(0x04, name)));
  }
  const body = sequence(
    der(0xa0, der(0x02, Buffer.of(2))),
    der(0x02, Buffer.concat([Buffer.of(1), randomBytes(8)])),
    algorithm,
    distinguished(issuer),
    sequence(moment(now - DAY_MS), moment(now + DAY_MS)),
    distinguished(subject),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensions)),
  );
  const signature = der(0x03, Buffer.concat([Buffer.of(0), sign('sha256', body, signer)]));
  const base64 = sequence(body, algorithm, signature).toString('base64');
  return `-----BEGIN CERTIFICATE-----\n${base64.replace(/.{64}(?=.)/g, '$&\n')}\n-----END CERTIFICATE-----\n`;
}

function distinguished(name: string): Buffer {
  return sequence(der(0x31, sequence(der(0x06, Buffer.from(COMMON_NAME)), der(0x0c, Buffer.from(name)))));
}

function moment(ms: number): Buffer {
  const text = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, '');
  return der(0x18, Buffer.from(text));
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), content]);
  const bytes = length < 0x1_00 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...bytes), content]);
}
