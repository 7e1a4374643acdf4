import type { Values } from './settings.ts';
import { SETTINGS, type SettingPath } from './settings.ts';

/**
 * A rule about settings that are valid alone and wrong together. A rule is skipped if one of its settings
 * could not be read, because that has its own sentence.
 */
interface SettingsRule {
  readonly looksAt: readonly SettingPath[];
  /** Returns the sentence, or null if the settings agree. */
  check(values: Values): string | null;
}

const RULES: readonly SettingsRule[] = [
  {
    looksAt: ['frontend.enabled', 'meta.enabled', 'roles', 'cluster.listen'],
    check: values =>
      // Other replicas forward requests to a replica that only works.
      values['frontend.enabled'] || values['meta.enabled'] || values['cluster.listen'] !== ''
        ? null
        : 'frontend.enabled and meta.enabled are both false: nothing would be served. Switch at least one of them on.',
  },
  {
    looksAt: ['frontend.enabled', 'meta.enabled', 'host', 'metaHost', 'port', 'metaPort'],
    check: values => {
      const isSame =
        values['frontend.enabled'] &&
        values['meta.enabled'] &&
        values.port !== 0 &&
        values.port === values.metaPort &&
        shareAnAddress(values.host, values.metaHost);
      return isSame
        ? `port and metaPort are both ${values.port}: each entry needs a port of its own (0 takes any free one).`
        : null;
    },
  },
  {
    looksAt: ['frontend.enabled', 'host', 'enable_func_token_auth', 'insecure'],
    check: values => exposed(values, 'host', values['frontend.enabled']),
  },
  {
    looksAt: ['meta.enabled', 'metaHost', 'enable_func_token_auth', 'insecure'],
    check: values => exposed(values, 'metaHost', values['meta.enabled']),
  },
  {
    looksAt: ['jobs.store', 's3.endpoint'],
    check: values =>
      values['jobs.store'] === '' || values['s3.endpoint'] !== ''
        ? null
        : 'jobs.store names a bucket, and s3.endpoint no server that has it. Set s3.endpoint too.',
  },
  {
    looksAt: ['roles', 'cluster.listen'],
    check: values =>
      values.roles.includes('worker') || values['cluster.listen'] !== ''
        ? null
        : 'roles has no worker and cluster.listen is not set: nothing could run. Add worker, or name the other replicas’ listener.',
  },
  {
    looksAt: ['cluster.listen', 'cluster.advertise'],
    check: ({ 'cluster.listen': listen, 'cluster.advertise': advertise }) => {
      if (listen === '') {
        return advertise === ''
          ? null
          : 'cluster.advertise is set and cluster.listen is not: others would find nothing there. Set cluster.listen too.';
      }
      if (portOf(listen) > MAX_PORT) return `cluster.listen is ${listen}: a port is at most ${MAX_PORT}.`;
      if (advertise === '') {
        return isAnyAddress(listen.slice(0, listen.lastIndexOf(':')))
          ? `cluster.listen is ${listen}, which is every address of this machine: set cluster.advertise to the one at which other replicas find it.`
          : null;
      }
      const port = portOf(advertise);
      return port >= 1 && port <= MAX_PORT
        ? null
        : `cluster.advertise is ${advertise}: its port must be from 1 to ${MAX_PORT}.`;
    },
  },
  {
    looksAt: ['cluster.listen'],
    check: values => {
      if (values['cluster.listen'] === '' || !('storage.url' in SETTINGS)) return null;
      const isShared = ['storage.url', 'storage.urlFile'].some(path => values[path as SettingPath] !== null);
      return isShared
        ? null
        : 'cluster.listen is set and storage.url is not: replicas share their records in a PostgreSQL. Set storage.url, or leave cluster.listen out.';
    },
  },
];

const MAX_PORT = 65_535;

function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(':') + 1));
}

export function contradictionsOf(values: Values, isWrong: ReadonlySet<string>): string[] {
  return RULES.filter(rule => !rule.looksAt.some(path => isWrong.has(path)))
    .map(rule => rule.check(values))
    .filter(sentence => sentence !== null);
}

/** Returns true for loopback names. Other names do not count, even if they resolve to loopback now. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host === '[::1]' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}

function exposed(values: Values, setting: 'host' | 'metaHost', isEnabled: boolean): string | null {
  const host = values[setting];
  if (!isEnabled || isLoopback(host) || values.enable_func_token_auth || values.insecure) return null;
  return (
    `${setting} is ${host}, which is not a loopback address, and authentication is off: any client that reaches it could run code on this machine. ` +
    'Set enable_func_token_auth to true with a key, or give --insecure if that is what you want.'
  );
}

function isAnyAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::' || host === '[::]';
}

function shareAnAddress(a: string, b: string): boolean {
  return a === b || isAnyAddress(a) || isAnyAddress(b) || (isLoopback(a) && isLoopback(b));
}
