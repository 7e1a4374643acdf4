/** The rules of Kubernetes for labels: an optional DNS prefix and a name. The value may be empty. */
const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const PREFIX = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const MAX_PREFIX_CHARS = 253;
/** Prefix of labels that the platform writes itself. */
const OWN_PREFIX = /^(.*\.)?rookery\.io$/;

export function isLabelKey(text: string): boolean {
  const slash = text.indexOf('/');
  if (slash === -1) return NAME.test(text);
  const prefix = text.slice(0, slash);
  return prefix.length <= MAX_PREFIX_CHARS && PREFIX.test(prefix) && NAME.test(text.slice(slash + 1));
}

export function isLabelValue(text: string): boolean {
  return text === '' || NAME.test(text);
}

/** Returns true for labels that only the platform sets. */
export function isOwnLabel(key: string): boolean {
  const slash = key.indexOf('/');
  return slash !== -1 && OWN_PREFIX.test(key.slice(0, slash));
}
