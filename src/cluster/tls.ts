import { hkdfSync } from 'node:crypto';
import type { ConnectionOptions, TLSSocket, TlsOptions } from 'node:tls';

/** Proof by which the replicas of a cluster recognize each other. */
export type ClusterIdentity =
  | { readonly kind: 'secret'; readonly secret: Uint8Array }
  /** PEM texts. Every holder of a certificate of `ca` is a replica. */
  | { readonly kind: 'tls'; readonly cert: string; readonly key: string; readonly ca: string };

/** TLS options of both ends of a connection between replicas. */
export interface ClusterTls {
  readonly server: TlsOptions;
  readonly client: ConnectionOptions;
}

/** TLS 1.3 combines a pre-shared key with ECDHE: a secret that leaks later opens no earlier traffic. */
const ONLY_TLS_1_3 = { minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3' } as const;
/** Node 20 supports only SHA-256 suites with a pre-shared key. */
const PSK_CIPHERS = 'TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256';
const KEY_PURPOSE = 'rookery cluster connections, version 1';
const KEY_BYTES = 32;
const NODE_ID = /^[\w.-]{1,128}$/;

/**
 * Returns the TLS options with which this node and other replicas authenticate each other. Decision 0012
 * gives the reasons.
 */
export function clusterTls(identity: ClusterIdentity, nodeId: string): ClusterTls {
  if (identity.kind === 'tls') {
    const { cert, key, ca } = identity;
    const own = { ...ONLY_TLS_1_3, cert, key, ca: [ca] };
    return {
      server: { ...own, requestCert: true, rejectUnauthorized: true },
      // Addresses of replicas change. The authority has no other purpose than to certify replicas.
      client: { ...own, rejectUnauthorized: true, checkServerIdentity: () => undefined },
    };
  }
  const psk = Buffer.from(hkdfSync('sha256', identity.secret, '', KEY_PURPOSE, KEY_BYTES));
  const shared = { ...ONLY_TLS_1_3, ciphers: PSK_CIPHERS };
  return {
    server: {
      ...shared,
      pskCallback: (_socket: TLSSocket, sent: string) => (NODE_ID.test(sent) ? psk : null),
    },
    client: { ...shared, pskCallback: () => ({ psk, identity: nodeId }), checkServerIdentity: () => undefined },
  };
}
