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

/**
 * Quantities of Kubernetes resources, in the forms that pools accept. `cpu`: milli-cores with the suffix `m`.
 * `memory`: `Mi` or `Gi`. Other resources (`nvidia.com/gpu`): plain numbers, or numbers with a suffix.
 */
const CPU = /^(\d{1,9})m$/;
const MEMORY = /^(\d{1,9}(?:\.\d{1,3})?)(Mi|Gi)$/;
const OTHER = /^(\d{1,15}(?:\.\d{1,3})?)(m|Ki|Mi|Gi|Ti)?$/;
const FACTOR: Readonly<Record<string, number>> = {
  '': 1,
  m: 0.001,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

const SHAPES: Readonly<Record<string, string>> = {
  cpu: 'milli-cores with the suffix m, such as 500m',
  memory: 'a number with the suffix Mi or Gi, such as 512Mi',
};

/** Returns the amount (cores, bytes, pieces), or null when the text is not a quantity of that resource. */
export function parseQuantity(resource: string, text: string): number | null {
  const form = resource === 'cpu' ? CPU : resource === 'memory' ? MEMORY : OTHER;
  const match = form.exec(text);
  if (!match) return null;
  const suffix = resource === 'cpu' ? 'm' : (match[2] ?? '');
  return Number(match[1]) * (FACTOR[suffix] ?? 1);
}

/** Returns the form of a resource's quantity, for errors. */
export function quantityShape(resource: string): string {
  return SHAPES[resource] ?? 'a number, or one with the suffix m, Ki, Mi, Gi or Ti';
}
