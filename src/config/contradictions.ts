import type { Values } from './config.ts';
import type { SettingPath } from './settings.ts';

/**
 * Settings that are right each by itself and wrong together. A rule is left out when a setting that it looks at could
 * not be read: that has a sentence of its own.
 */
interface Rule {
  readonly looksAt: readonly SettingPath[];
  /** The sentence, or null when all is well. */
  check(values: Values): string | null;
}

const RULES: readonly Rule[] = [
  {
    looksAt: ['frontend.enabled', 'meta.enabled'],
    check: values =>
      values['frontend.enabled'] || values['meta.enabled']
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
];

export function contradictionsOf(values: Values, isWrong: ReadonlySet<string>): string[] {
  return RULES.filter(rule => !rule.looksAt.some(path => isWrong.has(path)))
    .map(rule => rule.check(values))
    .filter(sentence => sentence !== null);
}

/** Names that resolve to somewhere else are not loopback, whatever they resolve to here and now. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host === '[::1]' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}

function exposed(values: Values, setting: 'host' | 'metaHost', isEnabled: boolean): string | null {
  const host = values[setting];
  if (!isEnabled || isLoopback(host) || values.enable_func_token_auth || values.insecure) return null;
  return (
    `${setting} is ${host}, which is not a loopback address, and authentication is off: anybody who reaches it could run code on this machine. ` +
    'Set enable_func_token_auth to true with a key, or give --insecure if that is what you want.'
  );
}

function shareAnAddress(a: string, b: string): boolean {
  const isAny = (host: string): boolean => host === '0.0.0.0' || host === '::' || host === '[::]';
  return a === b || isAny(a) || isAny(b) || (isLoopback(a) && isLoopback(b));
}
