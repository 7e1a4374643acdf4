/** A kind of sandbox without code. */
export interface Template {
  readonly name: string;
  /** Programs of the platform in every sandbox of the template, hidden from the list of its processes. */
  readonly programs: readonly TemplateProgram[];
}

/** A program that the service starts after each start of a sandbox, through `startProcess` with `hidden`. */
export interface TemplateProgram {
  /** Tag of the process; unique in the template. */
  readonly tag: string;
  /** Account of the sandbox that runs the program. */
  readonly user: 'root' | 'user';
  /** Command line inside the sandbox. A name without a slash is searched on the sandbox's PATH. */
  readonly argv: readonly string[];
  /** Variables in addition to those of the sandbox. */
  readonly env: Readonly<Record<string, string>>;
  /** TCP port on which the program listens when it is ready. Absent: it has none. */
  readonly port?: number;
}

/** Template of a sandbox for which none was named. */
export const DEFAULT_TEMPLATE = 'base';

const TEMPLATES: readonly Template[] = [
  { name: DEFAULT_TEMPLATE, programs: [] },
  { name: 'code-interpreter-v1', programs: [] },
];

/** Returns the template with this name, or undefined. */
export function findTemplate(name: string): Template | undefined {
  return TEMPLATES.find(template => template.name === name);
}

/** Returns the names of all templates. */
export function templateNames(): readonly string[] {
  return TEMPLATES.map(({ name }) => name);
}
