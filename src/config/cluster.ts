import { createSecureContext } from 'node:tls';
import { messageOf } from '../core/error.ts';
import { checkPrivate, readSecretFile, readWhole } from './secret-keys.ts';
import type { Values } from './settings.ts';

/** The identity that replicas prove to each other (`ClusterIdentity` of `cluster/tls.ts`). */
export type ClusterIdentity =
  | { readonly kind: 'secret'; readonly secret: Uint8Array }
  | { readonly kind: 'tls'; readonly cert: string; readonly key: string; readonly ca: string };

interface ReadIdentity {
  /** Null: the service has no other replicas, or the settings have problems. */
  readonly identity: ClusterIdentity | null;
  readonly problems: readonly string[];
}

const TLS_SETTINGS = ['cluster.tls.certFile', 'cluster.tls.keyFile', 'cluster.tls.caFile'] as const;

/** Reads the secret or the certificates that the settings name, and reports all problems with them. */
export async function readCluster(values: Values, isWrong: ReadonlySet<string> = new Set()): Promise<ReadIdentity> {
  const secretFile = values['cluster.secretFile'];
  const given = TLS_SETTINGS.filter(path => values[path] !== null);
  const isUnknown = isWrong.has('cluster.listen');
  const isOff = values['cluster.listen'] === '' && !isUnknown;
  const named = [...(secretFile === null ? [] : ['cluster.secretFile']), ...given];
  if (isOff) {
    if (named.length === 0) return nothing();
    return nothing(`${list(named)} is set and cluster.listen is not: without it there are no other replicas.`);
  }
  if (secretFile !== null && given.length > 0) {
    return nothing(
      `cluster.secretFile and ${list(given)} are both set: replicas know each other by one, so set only one.`,
    );
  }
  if (secretFile !== null) return await readSecret(secretFile);
  // A setting that could not be read has its own sentence, and may be the one that is missing here.
  if ([...TLS_SETTINGS, 'cluster.secretFile'].some(path => isWrong.has(path))) return nothing();
  if (given.length === 0) {
    if (isUnknown) return nothing();
    return nothing(
      `cluster.listen is set and replicas have nothing to know each other by: set cluster.secretFile, or ${list(TLS_SETTINGS)}.`,
    );
  }
  const missing = TLS_SETTINGS.filter(path => values[path] === null);
  if (missing.length > 0) return nothing(`${list(missing)} is missing: mutual TLS needs ${list(TLS_SETTINGS)}.`);
  const [certFile, keyFile, caFile] = TLS_SETTINGS.map(path => values[path] as string) as [string, string, string];
  return await readTls(certFile, keyFile, caFile);
}

async function readSecret(file: string): Promise<ReadIdentity> {
  const checked = await checkPrivate('cluster.secretFile', file);
  if ('problem' in checked) return nothing(checked.problem);
  const secret = await readSecretFile('cluster.secretFile', file);
  if ('problem' in secret) return nothing(secret.problem);
  return { identity: { kind: 'secret', secret: secret.value }, problems: [] };
}

async function readTls(certFile: string, keyFile: string, caFile: string): Promise<ReadIdentity> {
  const problems: string[] = [];
  const read = async (name: string, file: string) => {
    const whole = await readWhole(name, file);
    if ('value' in whole) return whole.value.toString('utf8');
    problems.push(whole.problem);
    return '';
  };
  const cert = await read('cluster.tls.certFile', certFile);
  const checked = await checkPrivate('cluster.tls.keyFile', keyFile);
  if ('problem' in checked) problems.push(checked.problem);
  const key = 'problem' in checked ? '' : await read('cluster.tls.keyFile', keyFile);
  const ca = await read('cluster.tls.caFile', caFile);
  if (problems.length > 0) return { identity: null, problems };
  if (!ca.includes('BEGIN CERTIFICATE')) {
    return nothing(`cluster.tls.caFile: ${caFile} is not a certificate in PEM ("-----BEGIN CERTIFICATE-----").`);
  }
  try {
    createSecureContext({ cert, key, ca });
  } catch (error) {
    return nothing(`cluster.tls: ${certFile}, ${keyFile} and ${caFile} do not work together (${messageOf(error)}).`);
  }
  return { identity: { kind: 'tls', cert, key, ca }, problems: [] };
}

function nothing(...problems: readonly string[]): ReadIdentity {
  return { identity: null, problems };
}

function list(names: readonly string[]): string {
  return names.length === 1 ? (names[0] as string) : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}
