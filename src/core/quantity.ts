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
